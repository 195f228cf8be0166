// SPDX-License-Identifier: Apache-2.0
// A decompression unit: the bytes behind a tag to the value. Total: every tag and word gives one. Latency 2.
`default_nettype none

module dequantise (
    input wire logic clk,
    input wire logic en,
    input wire logic [7:0] shift1,
    input wire logic [7:0] shift2,
    input wire logic [1:0] tag,
    input wire logic [2:0] x_bytes,  // 4: a value; less: the raw bytes behind the last one
    input wire logic [31:0] data,  // its bytes, and whatever follows them
    output logic [31:0] x
);
  logic [14:0] q;
  logic [7:0] e_of_top;  // the exponent, were q's highest bit 1
  logic [3:0] zeros;

  always_comb begin
    q = tag[1] ? data[14:0] : {data[6:0], 8'b0};
    e_of_top = tag[1] ? shift2 - 8'd9 : shift1 - 8'd17;
    zeros = 4'd15;
    for (int i = 0; i < 15; i++) if (q[i]) zeros = 4'd14 - i[3:0];
  end

  logic [1:0] tag1;
  logic [2:0] bytes1;
  logic [31:0] data1;
  logic [14:0] q1;
  logic [7:0] e1;
  logic [3:0] zeros1;

  always_ff @(posedge clk) begin
    if (en) begin
      tag1 <= tag;
      bytes1 <= x_bytes;
      data1 <= data;
      q1 <= q;
      e1 <= e_of_top;
      zeros1 <= zeros;
    end
  end

  logic [14:0] normal;
  logic sign;
  logic [31:0] value;

  always_comb begin
    normal = q1 << zeros1;
    sign = tag1[1] ? data1[15] : data1[7];
    if (bytes1 != 3'd4) begin
      value = 32'b0;
      value[7:0] = (bytes1 != 3'd0) ? data1[7:0] : 8'b0;
      value[15:8] = bytes1[1] ? data1[15:8] : 8'b0;
      value[23:16] = (bytes1 == 3'd3) ? data1[23:16] : 8'b0;
    end else begin
      case (tag1)
        2'd0: value = 32'b0;
        2'd3: value = data1;
        default: value = normal[14] ? {sign, e1 - {4'b0, zeros1}, normal[13:0], 9'b0} : {sign, 31'b0};
      endcase
    end
  end

  always_ff @(posedge clk) if (en) x <= value;
endmodule

`default_nettype wire
