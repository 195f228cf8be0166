// SPDX-License-Identifier: Apache-2.0
// The card with the clocks that a board has: the host's streams and registers have the host's, each way of the wire has
// its MAC's, and the card its own. One reset, which may come from anywhere, is made one of each clock. A frame that the
// MAC calls damaged ends here; so does one from the wire for which there is no room, since a MAC does not wait.
`default_nettype none

module card_clocks #(
    parameter int W = 256,
    parameter int STORE = 16384,  // bytes, of each stream: more than the longest frame
    localparam int B = W / 8
) (
    input wire logic any_rst,
    input wire logic clk,
    input wire logic host_clk,
    input wire logic rx_clk,
    input wire logic tx_clk,
    input wire logic [W-1:0] s_host_axis_tdata,
    input wire logic [B-1:0] s_host_axis_tkeep,
    input wire logic s_host_axis_tvalid,
    output logic s_host_axis_tready,
    input wire logic s_host_axis_tlast,
    output logic [W-1:0] m_wire_axis_tdata,
    output logic [B-1:0] m_wire_axis_tkeep,
    output logic m_wire_axis_tvalid,
    input wire logic m_wire_axis_tready,
    output logic m_wire_axis_tlast,
    input wire logic [W-1:0] s_wire_axis_tdata,
    input wire logic [B-1:0] s_wire_axis_tkeep,
    input wire logic s_wire_axis_tvalid,
    output logic s_wire_axis_tready,
    input wire logic s_wire_axis_tlast,
    input wire logic s_wire_axis_tuser,  // with tlast: the frame is damaged
    output logic ev_damaged,  // of rx_clk, one cycle each
    // One cycle each: a frame longer than the store of the stream from the host (of host_clk), to the wire, to the host
    // (of clk), and from the wire (of rx_clk) one for which there was no room.
    output logic [3:0] ev_lost,
    output logic [W-1:0] m_host_axis_tdata,
    output logic [B-1:0] m_host_axis_tkeep,
    output logic m_host_axis_tvalid,
    input wire logic m_host_axis_tready,
    output logic m_host_axis_tlast,
    input wire logic [7:0] s_axil_awaddr,
    input wire logic s_axil_awvalid,
    output logic s_axil_awready,
    input wire logic [31:0] s_axil_wdata,
    input wire logic [3:0] s_axil_wstrb,
    input wire logic s_axil_wvalid,
    output logic s_axil_wready,
    output logic [1:0] s_axil_bresp,
    output logic s_axil_bvalid,
    input wire logic s_axil_bready,
    input wire logic [7:0] s_axil_araddr,
    input wire logic s_axil_arvalid,
    output logic s_axil_arready,
    output logic [31:0] s_axil_rdata,
    output logic [1:0] s_axil_rresp,
    output logic s_axil_rvalid,
    input wire logic s_axil_rready
);
  logic rst, host_rst, rx_rst, tx_rst;
  reset_sync card_reset (
      .clk(clk),
      .any_rst(any_rst),
      .rst(rst)
  );
  reset_sync host_reset (
      .clk(host_clk),
      .any_rst(any_rst),
      .rst(host_rst)
  );
  reset_sync rx_reset (
      .clk(rx_clk),
      .any_rst(any_rst),
      .rst(rx_rst)
  );
  reset_sync tx_reset (
      .clk(tx_clk),
      .any_rst(any_rst),
      .rst(tx_rst)
  );

  typedef struct packed {
    logic [W-1:0] tdata;
    logic [B-1:0] tkeep;
    logic tvalid;
    logic tlast;
  } stream_t;
  logic [2:0] unused_damaged;  // no MAC stands before the other streams
  stream_t host_in, wire_out, wire_in, host_out;
  logic host_in_ready, wire_out_ready, wire_in_ready, host_out_ready;
  frame_cross #(
      .W(W),
      .STORE(STORE),
      .WAITS(1'b1)
  ) from_host (
      .s_clk(host_clk),
      .s_rst(host_rst),
      .s_axis_tdata(s_host_axis_tdata),
      .s_axis_tkeep(s_host_axis_tkeep),
      .s_axis_tvalid(s_host_axis_tvalid),
      .s_axis_tready(s_host_axis_tready),
      .s_axis_tlast(s_host_axis_tlast),
      .s_axis_tuser(1'b0),
      .ev_damaged(unused_damaged[0]),
      .ev_lost(ev_lost[0]),
      .m_clk(clk),
      .m_rst(rst),
      .m_axis_tdata(host_in.tdata),
      .m_axis_tkeep(host_in.tkeep),
      .m_axis_tvalid(host_in.tvalid),
      .m_axis_tready(host_in_ready),
      .m_axis_tlast(host_in.tlast)
  );
  frame_cross #(
      .W(W),
      .STORE(STORE),
      .WAITS(1'b1)
  ) to_wire (
      .s_clk(clk),
      .s_rst(rst),
      .s_axis_tdata(wire_out.tdata),
      .s_axis_tkeep(wire_out.tkeep),
      .s_axis_tvalid(wire_out.tvalid),
      .s_axis_tready(wire_out_ready),
      .s_axis_tlast(wire_out.tlast),
      .s_axis_tuser(1'b0),
      .ev_damaged(unused_damaged[1]),
      .ev_lost(ev_lost[1]),
      .m_clk(tx_clk),
      .m_rst(tx_rst),
      .m_axis_tdata(m_wire_axis_tdata),
      .m_axis_tkeep(m_wire_axis_tkeep),
      .m_axis_tvalid(m_wire_axis_tvalid),
      .m_axis_tready(m_wire_axis_tready),
      .m_axis_tlast(m_wire_axis_tlast)
  );
  frame_cross #(
      .W(W),
      .STORE(STORE),
      .WAITS(1'b0)
  ) from_wire (
      .s_clk(rx_clk),
      .s_rst(rx_rst),
      .s_axis_tdata(s_wire_axis_tdata),
      .s_axis_tkeep(s_wire_axis_tkeep),
      .s_axis_tvalid(s_wire_axis_tvalid),
      .s_axis_tready(s_wire_axis_tready),
      .s_axis_tlast(s_wire_axis_tlast),
      .s_axis_tuser(s_wire_axis_tuser),
      .ev_damaged(ev_damaged),
      .ev_lost(ev_lost[3]),
      .m_clk(clk),
      .m_rst(rst),
      .m_axis_tdata(wire_in.tdata),
      .m_axis_tkeep(wire_in.tkeep),
      .m_axis_tvalid(wire_in.tvalid),
      .m_axis_tready(wire_in_ready),
      .m_axis_tlast(wire_in.tlast)
  );
  frame_cross #(
      .W(W),
      .STORE(STORE),
      .WAITS(1'b1)
  ) to_host (
      .s_clk(clk),
      .s_rst(rst),
      .s_axis_tdata(host_out.tdata),
      .s_axis_tkeep(host_out.tkeep),
      .s_axis_tvalid(host_out.tvalid),
      .s_axis_tready(host_out_ready),
      .s_axis_tlast(host_out.tlast),
      .s_axis_tuser(1'b0),
      .ev_damaged(unused_damaged[2]),
      .ev_lost(ev_lost[2]),
      .m_clk(host_clk),
      .m_rst(host_rst),
      .m_axis_tdata(m_host_axis_tdata),
      .m_axis_tkeep(m_host_axis_tkeep),
      .m_axis_tvalid(m_host_axis_tvalid),
      .m_axis_tready(m_host_axis_tready),
      .m_axis_tlast(m_host_axis_tlast)
  );

  logic [7:0] awaddr;
  logic awvalid;
  logic awready;
  logic [31:0] wdata;
  logic [3:0] wstrb;
  logic wvalid;
  logic wready;
  logic [1:0] bresp;
  logic bvalid;
  logic bready;
  logic [7:0] araddr;
  logic arvalid;
  logic arready;
  logic [31:0] rdata;
  logic [1:0] rresp;
  logic rvalid;
  logic rready;
  axil_cross registers (
      .s_clk(host_clk),
      .s_rst(host_rst),
      .s_axil_awaddr(s_axil_awaddr),
      .s_axil_awvalid(s_axil_awvalid),
      .s_axil_awready(s_axil_awready),
      .s_axil_wdata(s_axil_wdata),
      .s_axil_wstrb(s_axil_wstrb),
      .s_axil_wvalid(s_axil_wvalid),
      .s_axil_wready(s_axil_wready),
      .s_axil_bresp(s_axil_bresp),
      .s_axil_bvalid(s_axil_bvalid),
      .s_axil_bready(s_axil_bready),
      .s_axil_araddr(s_axil_araddr),
      .s_axil_arvalid(s_axil_arvalid),
      .s_axil_arready(s_axil_arready),
      .s_axil_rdata(s_axil_rdata),
      .s_axil_rresp(s_axil_rresp),
      .s_axil_rvalid(s_axil_rvalid),
      .s_axil_rready(s_axil_rready),
      .m_clk(clk),
      .m_rst(rst),
      .m_axil_awaddr(awaddr),
      .m_axil_awvalid(awvalid),
      .m_axil_awready(awready),
      .m_axil_wdata(wdata),
      .m_axil_wstrb(wstrb),
      .m_axil_wvalid(wvalid),
      .m_axil_wready(wready),
      .m_axil_bresp(bresp),
      .m_axil_bvalid(bvalid),
      .m_axil_bready(bready),
      .m_axil_araddr(araddr),
      .m_axil_arvalid(arvalid),
      .m_axil_arready(arready),
      .m_axil_rdata(rdata),
      .m_axil_rresp(rresp),
      .m_axil_rvalid(rvalid),
      .m_axil_rready(rready)
  );

  card #(
      .W(W)
  ) inner (
      .clk(clk),
      .rst(rst),
      .s_host_axis_tdata(host_in.tdata),
      .s_host_axis_tkeep(host_in.tkeep),
      .s_host_axis_tvalid(host_in.tvalid),
      .s_host_axis_tready(host_in_ready),
      .s_host_axis_tlast(host_in.tlast),
      .m_wire_axis_tdata(wire_out.tdata),
      .m_wire_axis_tkeep(wire_out.tkeep),
      .m_wire_axis_tvalid(wire_out.tvalid),
      .m_wire_axis_tready(wire_out_ready),
      .m_wire_axis_tlast(wire_out.tlast),
      .s_wire_axis_tdata(wire_in.tdata),
      .s_wire_axis_tkeep(wire_in.tkeep),
      .s_wire_axis_tvalid(wire_in.tvalid),
      .s_wire_axis_tready(wire_in_ready),
      .s_wire_axis_tlast(wire_in.tlast),
      .m_host_axis_tdata(host_out.tdata),
      .m_host_axis_tkeep(host_out.tkeep),
      .m_host_axis_tvalid(host_out.tvalid),
      .m_host_axis_tready(host_out_ready),
      .m_host_axis_tlast(host_out.tlast),
      .s_axil_awaddr(awaddr),
      .s_axil_awvalid(awvalid),
      .s_axil_awready(awready),
      .s_axil_wdata(wdata),
      .s_axil_wstrb(wstrb),
      .s_axil_wvalid(wvalid),
      .s_axil_wready(wready),
      .s_axil_bresp(bresp),
      .s_axil_bvalid(bvalid),
      .s_axil_bready(bready),
      .s_axil_araddr(araddr),
      .s_axil_arvalid(arvalid),
      .s_axil_arready(arready),
      .s_axil_rdata(rdata),
      .s_axil_rresp(rresp),
      .s_axil_rvalid(rvalid),
      .s_axil_rready(rready)
  );
endmodule

`default_nettype wire
