// SPDX-License-Identifier: Apache-2.0
// Of a frame that was read whole: whether its checksum holds, and the words that its headers have in its other form,
// packed or (UNPACKS) restored. One sum of two words a cycle: inputs stay, and 6 cycles after the last of them came
// the outputs are right.
`default_nettype none

module new_header #(
    parameter bit UNPACKS = 1'b0
) (
    input wire logic clk,
    input wire logic v6,
    input wire logic udp,
    input wire logic [7:0] l4,
    input wire logic [7:0] payload,
    input wire logic [15:0] ip_end,
    input wire logic [15:0] ip_length,
    input wire logic [15:0] hop,
    input wire logic [15:0] ip_sum,
    input wire logic [15:0] l4_sum,
    input wire logic [31:0] new_shim,  // when packing
    input wire logic [16:0] shim_sum,  // when unpacking: {the checksum travelled in the shim, it}
    input wire logic [15:0] made_total,  // bytes of the other payload
    input wire logic [15:0] head_sum,  // of the pseudo-header's addresses and the transport header
    input wire logic [15:0] pay_sum,
    input wire logic [15:0] made_sum,
    output logic checks,
    output logic [15:0] new_l4_bytes,
    output logic [15:0] new_ip_length,
    output logic [15:0] new_hop,
    output logic [15:0] new_ip_sum,
    output logic [15:0] new_l4_sum
);
  localparam logic [15:0] SHIM = 16'd8;

  function automatic logic [15:0] plus(input logic [15:0] a, input logic [15:0] b);
    logic [16:0] s;
    s = {1'b0, a} + {1'b0, b};
    plus = s[15:0] + {15'b0, s[16]};
  endfunction

  logic [15:0] protocol, new_protocol, l4_bytes, longer, head, pay, made;
  logic [15:0] read, read_length, received;
  logic [15:0] length_change, protocol_change, ip_change;
  logic [15:0] kept, new_words, body, l4_change, lengths, shim_words, rest, rebuilt;
  logic no_sum;
  assign protocol = {8'b0, v6 ? hop[15:8] : hop[7:0]};
  assign new_protocol = UNPACKS ? (udp ? 16'd17 : 16'd6) : (udp ? 16'd254 : 16'd253);
  assign no_sum = udp && !v6 && l4_sum == 16'd0;

  always_ff @(posedge clk) begin
    {head, pay, made} <= {head_sum, pay_sum, made_sum};
    l4_bytes <= ip_end - {8'b0, l4};
    new_l4_bytes <= {8'b0, payload - l4} + made_total + (UNPACKS ? 16'd0 : SHIM);
    // What came.
    read <= plus(head, pay);
    read_length <= plus(protocol, l4_bytes);
    received <= plus(read, read_length);
    checks <= no_sum || received == 16'hffff;
    // IP.
    longer <= new_l4_bytes - l4_bytes;
    new_ip_length <= ip_length + longer;
    new_hop <= v6 ? {new_protocol[7:0], hop[7:0]} : {hop[15:8], new_protocol[7:0]};
    length_change <= plus(~ip_length, new_ip_length);
    protocol_change <= plus(~protocol, new_protocol);
    ip_change <= plus(length_change, protocol_change);
    new_ip_sum <= ~plus(~ip_sum, ip_change);
    // TCP or UDP: its length is a word of the pseudo-header, and UDP's one of its header too.
    kept <= plus(head, ~l4_sum);
    new_words <= plus(made, new_protocol);
    body <= plus(kept, new_words);
    l4_change <= plus(~l4_bytes, new_l4_bytes);
    lengths <= plus(new_l4_bytes, udp ? l4_change : 16'd0);
    shim_words <= UNPACKS ? 16'd0 : plus(new_shim[31:16], plus(new_shim[15:0], l4_sum));
    rest <= plus(lengths, shim_words);
    rebuilt <= plus(body, rest);
    new_l4_sum <= (udp && rebuilt == 16'hffff) ? 16'hffff : ~rebuilt;
    if (UNPACKS && shim_sum[16]) new_l4_sum <= shim_sum[15:0];
    else if (no_sum) new_l4_sum <= 16'd0;
  end
endmodule

`default_nettype wire
