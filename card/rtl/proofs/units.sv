// SPDX-License-Identifier: Apache-2.0
// quantise, then dequantise: for every float, bound and mode. What comes back is the value with low bits cleared, or a
// zero; `exact` says when it is the value itself; a second pass changes nothing but the sign of a zero; and in strict
// mode no finite value is off by 2^-b or more.
module proof (
    input wire clk,
    input wire literal,
    input wire [6:0] bound,
    input wire [31:0] x
);
  wire [7:0] e_low, e_middle, e_top, shift1, shift2;
  class_edges edges (.*);
  wire [1:0] tag, tag2;
  wire [2:0] bytes, bytes2;
  wire [31:0] data, data2, y, z;
  wire exact, exact2;
  quantise first (.en(1'b1), .x_bytes(3'd4), .*);
  dequantise back (.en(1'b1), .x_bytes(3'd4), .x(y), .*);
  quantise again (.en(1'b1), .x_bytes(3'd4), .x(y), .tag(tag2), .bytes(bytes2), .data(data2), .exact(exact2), .*);
  dequantise last (.en(1'b1), .x_bytes(3'd4), .tag(tag2), .data(data2), .x(z), .*);

  reg [7:0] b;
  reg signed [9:0] room;
  reg [22:0] off;
  always @(*) begin
    b = (bound == 0) ? 8'd1 : (bound > 100) ? 8'd100 : {1'b0, bound};
    off = x[22:0] - y[22:0];
    room = 10'd150 - {2'b0, b} - {2'b0, x[30:23]};  // off must stay below 2^room
    assert (bytes == ((tag == 3) ? 3'd4 : {1'b0, tag}));
    assert (exact == (y == x));
    assert (y[30:0] == 0 || (y[31:23] == x[31:23] && (y[22:0] & ~x[22:0]) == 0));
    assert (z == y || (y == 32'h80000000 && z == 0));
    assert (exact2 || y == 32'h80000000);
    if (!literal && x[30:23] != 255) begin
      if (y[30:0] == 0) assert (x[30:23] < 8'd127 - b || x[30:0] == 0);
      else assert (off == 0 || (room > 0 && room < 24 && (off >> room[4:0]) == 0));
    end
  end
endmodule
