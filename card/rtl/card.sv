// SPDX-License-Identifier: Apache-2.0
// The card: frames of the host leave for the wire, frames of the wire for the host, whole Ethernet frames without their
// check sequence. What is marked as gradients by its ToS byte travels packed (card_path); everything else passes.
`default_nettype none

module card #(
    parameter int W = 256,
    localparam int B = W / 8
) (
    input wire logic clk,
    input wire logic rst,
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
  logic cfg_on, cfg_exact, cfg_literal;
  logic [6:0] cfg_bound;
  logic [5:0] cfg_dscp;
  logic [15:0] cfg_min_bytes;
  logic [9:0] events;
  logic [13:0] bytes_in, bytes_out;

  function automatic logic [6:0] bytes_of(input logic [B-1:0] keep, input logic moves);
    bytes_of = 7'd0;
    for (int i = 0; i < B; i++) if (keep[i] && moves) bytes_of = 7'(i + 1);
  endfunction

  always_ff @(posedge clk) begin
    bytes_in[6:0] <= bytes_of(s_host_axis_tkeep, s_host_axis_tvalid && s_host_axis_tready);
    bytes_out[6:0] <= bytes_of(m_wire_axis_tkeep, m_wire_axis_tvalid && m_wire_axis_tready);
    bytes_in[13:7] <= bytes_of(s_wire_axis_tkeep, s_wire_axis_tvalid && s_wire_axis_tready);
    bytes_out[13:7] <= bytes_of(m_host_axis_tkeep, m_host_axis_tvalid && m_host_axis_tready);
  end

  card_path #(
      .W(W),
      .UNPACKS(1'b0)
  ) to_wire (
      .clk(clk),
      .rst(rst),
      .cfg_on(cfg_on),
      .cfg_exact(cfg_exact),
      .cfg_literal(cfg_literal),
      .cfg_bound(cfg_bound),
      .cfg_dscp(cfg_dscp),
      .cfg_min_bytes(cfg_min_bytes),
      .s_axis_tdata(s_host_axis_tdata),
      .s_axis_tkeep(s_host_axis_tkeep),
      .s_axis_tvalid(s_host_axis_tvalid),
      .s_axis_tready(s_host_axis_tready),
      .s_axis_tlast(s_host_axis_tlast),
      .m_axis_tdata(m_wire_axis_tdata),
      .m_axis_tkeep(m_wire_axis_tkeep),
      .m_axis_tvalid(m_wire_axis_tvalid),
      .m_axis_tready(m_wire_axis_tready),
      .m_axis_tlast(m_wire_axis_tlast),
      .ev_passed(events[0]),
      .ev_packed(events[1]),
      .ev_inexact(events[2]),
      .ev_grown(events[3]),
      .ev_dropped(events[4])
  );
  card_path #(
      .W(W),
      .UNPACKS(1'b1)
  ) to_host (
      .clk(clk),
      .rst(rst),
      .cfg_on(cfg_on),
      .cfg_exact(cfg_exact),
      .cfg_literal(cfg_literal),
      .cfg_bound(cfg_bound),
      .cfg_dscp(cfg_dscp),
      .cfg_min_bytes(cfg_min_bytes),
      .s_axis_tdata(s_wire_axis_tdata),
      .s_axis_tkeep(s_wire_axis_tkeep),
      .s_axis_tvalid(s_wire_axis_tvalid),
      .s_axis_tready(s_wire_axis_tready),
      .s_axis_tlast(s_wire_axis_tlast),
      .m_axis_tdata(m_host_axis_tdata),
      .m_axis_tkeep(m_host_axis_tkeep),
      .m_axis_tvalid(m_host_axis_tvalid),
      .m_axis_tready(m_host_axis_tready),
      .m_axis_tlast(m_host_axis_tlast),
      .ev_passed(events[5]),
      .ev_packed(events[6]),
      .ev_inexact(events[7]),
      .ev_grown(events[8]),
      .ev_dropped(events[9])
  );

  card_regs #(
      .W(W)
  ) registers (
      .clk(clk),
      .rst(rst),
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
      .cfg_on(cfg_on),
      .cfg_exact(cfg_exact),
      .cfg_literal(cfg_literal),
      .cfg_bound(cfg_bound),
      .cfg_dscp(cfg_dscp),
      .cfg_min_bytes(cfg_min_bytes),
      .events(events),
      .bytes_in(bytes_in),
      .bytes_out(bytes_out)
  );

`ifndef SYNTHESIS
  axis_rules #(
      .W(W),
      .USER_W(1)
  ) s_host_rules (
      .clk(clk),
      .rst(rst),
      .tdata(s_host_axis_tdata),
      .tkeep(s_host_axis_tkeep),
      .tvalid(s_host_axis_tvalid),
      .tready(s_host_axis_tready),
      .tlast(s_host_axis_tlast),
      .tuser(1'b0)
  );
  axis_rules #(
      .W(W),
      .USER_W(1)
  ) m_wire_rules (
      .clk(clk),
      .rst(rst),
      .tdata(m_wire_axis_tdata),
      .tkeep(m_wire_axis_tkeep),
      .tvalid(m_wire_axis_tvalid),
      .tready(m_wire_axis_tready),
      .tlast(m_wire_axis_tlast),
      .tuser(1'b0)
  );
  axis_rules #(
      .W(W),
      .USER_W(1)
  ) s_wire_rules (
      .clk(clk),
      .rst(rst),
      .tdata(s_wire_axis_tdata),
      .tkeep(s_wire_axis_tkeep),
      .tvalid(s_wire_axis_tvalid),
      .tready(s_wire_axis_tready),
      .tlast(s_wire_axis_tlast),
      .tuser(1'b0)
  );
  axis_rules #(
      .W(W),
      .USER_W(1)
  ) m_host_rules (
      .clk(clk),
      .rst(rst),
      .tdata(m_host_axis_tdata),
      .tkeep(m_host_axis_tkeep),
      .tvalid(m_host_axis_tvalid),
      .tready(m_host_axis_tready),
      .tlast(m_host_axis_tlast),
      .tuser(1'b0)
  );
`endif
endmodule

`default_nettype wire
