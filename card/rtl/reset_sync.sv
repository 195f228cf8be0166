// SPDX-License-Identifier: Apache-2.0
// A reset of one clock: begins at any time, with or without the clock, and ends at one of its edges.
`default_nettype none

module reset_sync (
    input wire logic clk,
    input wire logic any_rst,
    output logic rst
);
  logic [2:0] held;
  assign rst = held[2];
  always_ff @(posedge clk or posedge any_rst) begin
    if (any_rst) held <= 3'b111;
    else held <= {held[1:0], 1'b0};
  end
endmodule

`default_nettype wire
