// SPDX-License-Identifier: Apache-2.0
// The Internet checksum's sum (one's complement, words in network order) of the beats since `clear`; bytes that do
// not count must be 0. Holds for up to 2^16 words. `sum` has a beat two cycles after it came.
`default_nettype none

module checksum #(
    parameter int W = 256
) (
    input wire logic clk,
    input wire logic clear,  // what came before; a beat of the same cycle counts
    input wire logic [W-1:0] data,
    input wire logic valid,
    output logic [15:0] sum
);
  logic [31:0] beat, now, all;
  logic [16:0] folded;

  always_comb begin
    now = 32'b0;
    for (int i = 0; i < W / 16; i++) now = now + {16'b0, data[16*i+:8], data[16*i+8+:8]};
  end

  always_ff @(posedge clk) begin
    beat <= valid ? now : 32'b0;
    all <= clear ? 32'b0 : all + beat;
  end

  assign folded = {1'b0, all[15:0]} + {1'b0, all[31:16]};
  assign sum = folded[15:0] + {15'b0, folded[16]};
endmodule

`default_nettype wire
