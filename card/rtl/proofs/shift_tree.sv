// SPDX-License-Identifier: Apache-2.0
// shift_tree and split_tree of N lanes: the bytes of the lanes side by side for every mixture of 0 to 4 of them and
// all data, and back again.
module proof #(
    parameter N = 4,
    localparam BYTES_W = $clog2(N) + 3
) (
    input wire clk,
    input wire [32*N-1:0] raw,
    input wire [3*N-1:0] sizes
);
  reg [32*N-1:0] lanes;  // without what is past a lane's own bytes
  reg [32*N-1:0] joined;
  reg [BYTES_W-1:0] at;
  integer i;
  always @(*) begin
    lanes = 0;
    joined = 0;
    at = 0;
    for (i = 0; i < 4 * N; i = i + 1) if (i % 4 < sizes[3*(i/4) +: 3]) lanes[8*i +: 8] = raw[8*i +: 8];
    for (i = 0; i < N; i = i + 1) begin
      assume (sizes[3*i +: 3] <= 4);
      joined = joined | (lanes[32*i +: 32] << {at, 3'b0});
      at = at + sizes[3*i +: 3];
    end
  end

  wire [32*N-1:0] data, split;
  wire [BYTES_W-1:0] bytes;
  shift_tree #(.LANES(N)) dut (.clk(clk), .en(1'b1), .lane_data(lanes), .lane_bytes(sizes), .data(data), .bytes(bytes));
  split_tree #(.LANES(N)) back (.clk(clk), .en(1'b1), .data(data), .lane_bytes(sizes), .lane_data(split));
  always @(*) begin
    assert (data == joined);
    assert (bytes == at);
    for (i = 0; i < 4 * N; i = i + 1) if (i % 4 < sizes[3*(i/4) +: 3]) assert (split[8*i +: 8] == lanes[8*i +: 8]);
  end
endmodule
