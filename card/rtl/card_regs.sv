// SPDX-License-Identifier: Apache-2.0
// The card's registers over AXI4-Lite: 32 bits each, written whole. card/docs/card_rtl.md has the map. A refused
// write (no such register, read only, a bound outside 1..100) changes nothing and is answered with SLVERR.
// Counters have 64 bits: reading one's lower half keeps its upper half of that cycle, which is read next.
`default_nettype none

module card_regs #(
    parameter int W = 256,
    parameter bit [63:0] COUNTS_BEGIN = 64'd0  // another begin is for the bench
) (
    input wire logic clk,
    input wire logic rst,
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
    input wire logic s_axil_rready,
    output logic cfg_on,
    output logic cfg_exact,
    output logic cfg_literal,
    output logic [6:0] cfg_bound,
    output logic [5:0] cfg_dscp,
    output logic [15:0] cfg_min_bytes,
    input wire logic [9:0] events,  // host to wire: passed, packed, inexact, grown, dropped; wire to host likewise
    input wire logic [13:0] bytes_in,  // in this cycle, by direction
    input wire logic [13:0] bytes_out
);
  localparam logic [1:0] OKAY = 2'b00, SLVERR = 2'b10;
  logic [63:0] counts[14], count;  // by direction: five events, bytes in, bytes out
  logic [31:0] upper_half;

  logic writes, reads, known, is_count;
  logic [31:0] control, value;
  assign writes = s_axil_awvalid && s_axil_wvalid && !s_axil_bvalid;
  assign s_axil_awready = writes;
  assign s_axil_wready = writes;
  assign reads = s_axil_arvalid && !s_axil_rvalid;
  assign s_axil_arready = reads;
  assign control = {10'b0, cfg_dscp, 1'b0, cfg_bound, 5'b0, cfg_literal, cfg_exact, cfg_on};

  always_comb begin
    known = s_axil_araddr[1:0] == 2'b00;
    is_count = known && s_axil_araddr >= 8'h20 && s_axil_araddr < 8'h58;
    count = counts[is_count ? 4'((s_axil_araddr - 8'h20) >> 2) : 4'd0];
    value = 32'b0;
    case (s_axil_araddr)
      8'h00: value = 32'h494e4331;  // INC1
      8'h04: value = 32'(W);
      8'h08: value = control;
      8'h0c: value = {16'b0, cfg_min_bytes};
      8'h58: value = upper_half;
      default: begin
        value = count[31:0];
        known = is_count;
      end
    endcase
  end

  always_ff @(posedge clk) begin
    if (s_axil_bready) s_axil_bvalid <= 1'b0;
    if (writes) begin
      s_axil_bvalid <= 1'b1;
      s_axil_bresp <= SLVERR;
      if (&s_axil_wstrb && s_axil_awaddr == 8'h08 && (s_axil_wdata & 32'hffc080f8) == 32'd0
          && s_axil_wdata[14:8] != 7'd0 && s_axil_wdata[14:8] <= 7'd100) begin
        s_axil_bresp <= OKAY;
        {cfg_literal, cfg_exact, cfg_on} <= s_axil_wdata[2:0];
        cfg_bound <= s_axil_wdata[14:8];
        cfg_dscp <= s_axil_wdata[21:16];
      end
      if (&s_axil_wstrb && s_axil_awaddr == 8'h0c && s_axil_wdata[31:16] == 16'd0) begin
        s_axil_bresp <= OKAY;
        cfg_min_bytes <= s_axil_wdata[15:0];
      end
    end
    if (s_axil_rready) s_axil_rvalid <= 1'b0;
    if (reads) begin
      s_axil_rvalid <= 1'b1;
      s_axil_rdata <= value;
      s_axil_rresp <= known ? OKAY : SLVERR;
      if (is_count) upper_half <= count[63:32];
    end
    for (int d = 0; d < 2; d++) begin
      for (int i = 0; i < 5; i++) if (events[5*d+i]) counts[7*d+i] <= counts[7*d+i] + 64'd1;
      counts[7*d+5] <= counts[7*d+5] + {57'b0, bytes_in[7*d+:7]};
      counts[7*d+6] <= counts[7*d+6] + {57'b0, bytes_out[7*d+:7]};
    end
    if (rst) begin
      s_axil_bvalid <= 1'b0;
      s_axil_rvalid <= 1'b0;
      cfg_on <= 1'b1;
      cfg_exact <= 1'b1;
      cfg_literal <= 1'b0;
      cfg_bound <= 7'd10;
      cfg_dscp <= 6'd10;
      cfg_min_bytes <= 16'd64;
      upper_half <= 32'd0;
      for (int i = 0; i < 14; i++) counts[i] <= COUNTS_BEGIN;
    end
  end
endmodule

`default_nettype wire
