// SPDX-License-Identifier: Apache-2.0
// checksum: what it gives is its running sum by one's complement, which is 0 for 0 alone, and each beat adds its words
// in network order. By induction, as long as there were at most 2^16 words.
module proof #(
    parameter N = 32
) (
    input wire clk,
    input wire clear,
    input wire [N-1:0] data,
    input wire valid
);
  wire [15:0] sum;
  checksum #(.W(N)) dut (.*);
  (* hierconn *) wire [31:0] \dut.beat , \dut.all ;

  // The same two cycles later, by the definition.
  reg [31:0] words = 0, total = 0;
  reg [31:0] now;
  integer i;
  always @(*) begin
    now = 0;
    for (i = 0; i < N / 16; i = i + 1) now = now + {16'b0, data[16*i +: 8], data[16*i+8 +: 8]};
  end
  reg [16:0] count = 0;  // of words
  reg started = 0, clean = 0;
  always @(posedge clk) begin
    started <= 1;
    words <= valid ? now : 0;
    total <= clear ? 0 : total + words;
    count <= clear ? N / 16 : count + N / 16;
    if (clear) clean <= started;
  end
  reg [16:0] carry, k;
  always @(*) begin
    assume (count <= 17'd65536 || !clean);
    carry = {1'b0, total[15:0]} + {1'b0, total[31:16]};
    k = {1'b0, total[31:16]} + {16'b0, carry[16]};
    if (started) assert (\dut.beat == words);
    if (clean) begin
      assert (\dut.all == total);
      assert ({2'b0, total} + count <= {1'b0, count, 16'b0});  // at most 65535 a word
      // total = sum + 65535 k, and sum is 0 for a total of 0 alone: so sum is the residue.
      assert ({2'b0, total} + k == {1'b0, k, 16'b0} + sum);
      assert ((sum == 0) == (total == 0));
    end
  end
endmodule
