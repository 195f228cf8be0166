// SPDX-License-Identifier: Apache-2.0
// The bound 2^-b and the mode as five bytes, which is all that compression and decompression units need to know.
// Classes are edged by powers of two, so exponents (biased, as in the float's bits) decide:
//   e < e_low: tag 0, nothing; else e < e_middle: tag 1, a byte; else e < e_top: tag 2, two bytes; else tag 3, all.
// The byte's q is {1, mantissa} >> (shift1 - e), the two bytes' {1, mantissa} >> (shift2 - e).
// A bound outside 1..100 is taken for the nearest that is inside.
`default_nettype none

module class_edges (
    input wire logic literal,
    input wire logic [6:0] bound,
    output logic [7:0] e_low,
    output logic [7:0] e_middle,
    output logic [7:0] e_top,
    output logic [7:0] shift1,
    output logic [7:0] shift2
);
  logic [7:0] b, half, middle, top;

  always_comb begin
    b = {1'b0, bound};
    if (bound == 7'd0) b = 8'd1;
    if (bound > 7'd100) b = 8'd100;
    half = b >> 1;
    middle = half;  // of -log2 of the edges
    top = 8'd0;
    if (!literal) begin
      if (b > half + 8'd7) middle = b - 8'd7;
      if (b > 8'd15) top = b - 8'd15;
    end
    e_low = 8'd127 - b;
    e_middle = 8'd127 - middle;
    e_top = 8'd127 - top;
    shift1 = literal ? 8'd143 : 8'd143 - middle;
    shift2 = 8'd135 - top;
  end
endmodule

`default_nettype wire
