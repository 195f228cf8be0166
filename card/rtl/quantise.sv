// SPDX-License-Identifier: Apache-2.0
// A compression unit: one value to 0, 1, 2 or 4 bytes and its tag. A lane with less than a whole value (the 1 to 3
// bytes behind a packet's last one, or nothing) has tag 0 and keeps those bytes. Latency 2.
`default_nettype none

module quantise (
    input wire logic clk,
    input wire logic en,
    input wire logic [7:0] e_low,
    input wire logic [7:0] e_middle,
    input wire logic [7:0] e_top,
    input wire logic [7:0] shift1,
    input wire logic [7:0] shift2,
    input wire logic [31:0] x,
    input wire logic [2:0] x_bytes,  // 4: a value
    output logic [1:0] tag,
    output logic [2:0] bytes,
    output logic [31:0] data,  // 0 from `bytes` on
    output logic exact  // a decoder gives x back, bit for bit
);
  // Class and shift.
  logic whole;
  logic [7:0] e, amount;
  logic [1:0] class_of_x;
  logic [2:0] bytes_of_x;

  always_comb begin
    whole = x_bytes[2];
    e = x[30:23];
    if (!whole || e < e_low) class_of_x = 2'd0;
    else if (e < e_middle) class_of_x = 2'd1;
    else if (e < e_top) class_of_x = 2'd2;
    else class_of_x = 2'd3;
    case (class_of_x)
      2'd0: bytes_of_x = whole ? 3'd0 : x_bytes;
      2'd1: bytes_of_x = 3'd1;
      2'd2: bytes_of_x = 3'd2;
      default: bytes_of_x = 3'd4;
    endcase
    amount = (class_of_x[1] ? shift2 : shift1) - e;  // at least 9 for the classes that shift
  end

  logic [1:0] tag1;
  logic [2:0] bytes1;
  logic [31:0] x1;
  logic [3:0] shift;  // less the 9 bits that both classes lose; from 24 on q is 0
  logic whole1;

  always_ff @(posedge clk) begin
    if (en) begin
      tag1 <= class_of_x;
      bytes1 <= bytes_of_x;
      x1 <= x;
      whole1 <= whole;
      shift <= (amount >= 8'd24) ? 4'd15 : amount[3:0] - 4'd9;
    end
  end

  // The value itself.
  logic [14:0] f, q, lost;
  logic [31:0] word;
  logic is_exact;

  always_comb begin
    f = {1'b1, x1[22:9]};
    q = f >> shift;
    lost = f & ~(15'h7fff << shift);
    case (tag1)
      2'd0: begin
        word = 32'b0;
        if (!whole1) begin
          word[7:0] = (bytes1 != 3'd0) ? x1[7:0] : 8'b0;
          word[15:8] = bytes1[1] ? x1[15:8] : 8'b0;
          word[23:16] = (bytes1[1:0] == 2'd3) ? x1[23:16] : 8'b0;
        end
        is_exact = !whole1 || x1 == 32'b0;
      end
      2'd1: begin
        word = {24'b0, x1[31], q[6:0]};
        is_exact = lost == 15'b0 && x1[8:0] == 9'b0;
      end
      2'd2: begin
        word = {16'b0, x1[31], q};
        is_exact = lost == 15'b0 && x1[8:0] == 9'b0;
      end
      default: begin
        word = x1;
        is_exact = 1'b1;
      end
    endcase
  end

  always_ff @(posedge clk) begin
    if (en) begin
      tag <= tag1;
      bytes <= bytes1;
      data <= word;
      exact <= is_exact;
    end
  end
endmodule

`default_nettype wire
