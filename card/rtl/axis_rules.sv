// SPDX-License-Identifier: Apache-2.0
// What every AXI4-Stream port here keeps to; watches a port and drives nothing. Byte lane 0 travels first.
// Beyond AMBA: tkeep has no holes, is full except on the last beat and never empty; lanes without it carry 0.
`default_nettype none

module axis_rules #(
    parameter int W = 256,
    parameter int USER_W = 1
) (
    input wire logic clk,
    input wire logic rst,
    input wire logic [W-1:0] tdata,
    input wire logic [W/8-1:0] tkeep,
    input wire logic tvalid,
    input wire logic tready,
    input wire logic tlast,
    input wire logic [USER_W-1:0] tuser
);
`ifndef SYNTHESIS
  logic was_waiting, was_rst;
  logic [W-1:0] old_tdata;
  logic [W/8-1:0] old_tkeep;
  logic old_tlast;
  logic [USER_W-1:0] old_tuser;
  logic lanes_clear;

  always_comb begin
    lanes_clear = 1'b1;
    for (int i = 0; i < W / 8; i++) if (!tkeep[i] && tdata[8*i+:8] != 8'b0) lanes_clear = 1'b0;
  end

  always_ff @(posedge clk) begin
    was_rst <= rst;
    was_waiting <= tvalid && !tready && !rst;
    old_tdata <= tdata;
    old_tkeep <= tkeep;
    old_tlast <= tlast;
    old_tuser <= tuser;
    if (!rst && !was_rst) begin
      if (was_waiting) begin
        assert (tvalid);
        assert (tdata == old_tdata && tkeep == old_tkeep && tlast == old_tlast && tuser == old_tuser);
      end
      if (tvalid) begin
        assert (tkeep[0]);
        assert ((tkeep & (tkeep + 1'b1)) == '0);
        assert (tlast || (&tkeep));
        assert (lanes_clear);
      end
    end
  end
`endif
endmodule

`default_nettype wire
