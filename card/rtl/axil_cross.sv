// SPDX-License-Identifier: Apache-2.0
// AXI4-Lite from one clock to another: one write and one read at a time (ask_cross).
`default_nettype none

module axil_cross #(
    parameter int ADDRESS = 8
) (
    input wire logic s_clk,
    input wire logic s_rst,
    input wire logic [ADDRESS-1:0] s_axil_awaddr,
    input wire logic s_axil_awvalid,
    output logic s_axil_awready,
    input wire logic [31:0] s_axil_wdata,
    input wire logic [3:0] s_axil_wstrb,
    input wire logic s_axil_wvalid,
    output logic s_axil_wready,
    output logic [1:0] s_axil_bresp,
    output logic s_axil_bvalid,
    input wire logic s_axil_bready,
    input wire logic [ADDRESS-1:0] s_axil_araddr,
    input wire logic s_axil_arvalid,
    output logic s_axil_arready,
    output logic [31:0] s_axil_rdata,
    output logic [1:0] s_axil_rresp,
    output logic s_axil_rvalid,
    input wire logic s_axil_rready,
    input wire logic m_clk,
    input wire logic m_rst,
    output logic [ADDRESS-1:0] m_axil_awaddr,
    output logic m_axil_awvalid,
    input wire logic m_axil_awready,
    output logic [31:0] m_axil_wdata,
    output logic [3:0] m_axil_wstrb,
    output logic m_axil_wvalid,
    input wire logic m_axil_wready,
    input wire logic [1:0] m_axil_bresp,
    input wire logic m_axil_bvalid,
    output logic m_axil_bready,
    output logic [ADDRESS-1:0] m_axil_araddr,
    output logic m_axil_arvalid,
    input wire logic m_axil_arready,
    input wire logic [31:0] m_axil_rdata,
    input wire logic [1:0] m_axil_rresp,
    input wire logic m_axil_rvalid,
    output logic m_axil_rready
);
  // A write goes when both of its halves are there; on the other side each half is taken when that side likes.
  logic writes, write_ready, write_valid, address_went, data_went;
  assign writes = s_axil_awvalid && s_axil_wvalid;
  assign s_axil_awready = writes && write_ready;
  assign s_axil_wready = writes && write_ready;
  assign m_axil_awvalid = write_valid && !address_went;
  assign m_axil_wvalid = write_valid && !data_went;
  logic both_went;
  assign both_went = (address_went || m_axil_awready) && (data_went || m_axil_wready);
  always_ff @(posedge m_clk) begin
    if (m_axil_awvalid && m_axil_awready) address_went <= 1'b1;
    if (m_axil_wvalid && m_axil_wready) data_went <= 1'b1;
    if (m_rst || !write_valid) {address_went, data_went} <= 2'b00;
  end

  ask_cross #(
      .ASK(ADDRESS + 36),
      .ANSWER(2)
  ) write (
      .s_clk(s_clk),
      .s_rst(s_rst),
      .s_ask({s_axil_wstrb, s_axil_wdata, s_axil_awaddr}),
      .s_ask_valid(writes),
      .s_ask_ready(write_ready),
      .s_answer(s_axil_bresp),
      .s_answer_valid(s_axil_bvalid),
      .s_answer_ready(s_axil_bready),
      .m_clk(m_clk),
      .m_rst(m_rst),
      .m_ask({m_axil_wstrb, m_axil_wdata, m_axil_awaddr}),
      .m_ask_valid(write_valid),
      .m_ask_ready(both_went),
      .m_answer(m_axil_bresp),
      .m_answer_valid(m_axil_bvalid),
      .m_answer_ready(m_axil_bready)
  );
  ask_cross #(
      .ASK(ADDRESS),
      .ANSWER(34)
  ) read (
      .s_clk(s_clk),
      .s_rst(s_rst),
      .s_ask(s_axil_araddr),
      .s_ask_valid(s_axil_arvalid),
      .s_ask_ready(s_axil_arready),
      .s_answer({s_axil_rresp, s_axil_rdata}),
      .s_answer_valid(s_axil_rvalid),
      .s_answer_ready(s_axil_rready),
      .m_clk(m_clk),
      .m_rst(m_rst),
      .m_ask(m_axil_araddr),
      .m_ask_valid(m_axil_arvalid),
      .m_ask_ready(m_axil_arready),
      .m_answer({m_axil_rresp, m_axil_rdata}),
      .m_answer_valid(m_axil_rvalid),
      .m_answer_ready(m_axil_rready)
  );
endmodule

`default_nettype wire
