// SPDX-License-Identifier: Apache-2.0
// The tag decoder: of a piece's bytes, those that stand for values without the tags in front, and of each lane its
// tag and bytes. Tags past a packet's last value make its last piece bad. Latency 1.
`default_nettype none

module tag_decoder #(
    parameter int W = 256,
    localparam int LANES = W / 32,
    localparam int GROUPS = (W > 256) ? W / 256 : 1,
    localparam int TREE = LANES / GROUPS,
    localparam int FRONT_W = 32 * TREE + 16
) (
    input wire logic clk,
    input wire logic rst,
    input wire logic en,
    input wire logic in_valid,
    input wire logic [FRONT_W*GROUPS-1:0] in_front,  // each group's, its tags first
    input wire logic [GROUPS-1:0] in_has_tags,
    input wire logic [8*GROUPS-1:0] in_has_value,
    input wire logic [3*LANES-1:0] in_x_bytes,
    input wire logic in_last,
    input wire logic in_bad,
    output logic [W-1:0] data,
    output logic [2*LANES-1:0] tags,
    output logic [3*LANES-1:0] sizes,  // bytes that stand for a lane
    output logic [3*LANES-1:0] x_bytes,  // that it gives
    output logic last,
    output logic bad
);
  logic [15:0] held_tags;  // of a group's parts that are still to come
  logic [16*GROUPS-1:0] group_tags;
  logic past_end, past_end_before, is_bad;

  always_comb begin
    past_end = past_end_before;
    group_tags = '0;
    for (int g = 0; g < GROUPS; g++) begin
      group_tags[16*g+:16] = in_has_tags[g] ? in_front[FRONT_W*g+:16] : (TREE < 8) ? held_tags : 16'd0;
      for (int i = 0; i < 8; i++)
        if (in_has_tags[g] && !in_has_value[8*g+i] && in_front[FRONT_W*g+2*i+:2] != 2'd0) past_end = 1'b1;
    end
    is_bad = in_bad || (in_last && past_end);
  end

  always_ff @(posedge clk) begin
    if (en) begin
      for (int g = 0; g < GROUPS; g++) begin
        data[32*TREE*g+:32*TREE] <= in_has_tags[g] ? in_front[FRONT_W*g+16+:32*TREE] : in_front[FRONT_W*g+:32*TREE];
        for (int i = 0; i < TREE; i++) begin
          tags[2*(TREE*g+i)+:2] <= is_bad ? 2'd0 : group_tags[16*g+2*i+:2];
          if (!in_x_bytes[3*(TREE*g+i)+2]) sizes[3*(TREE*g+i)+:3] <= in_x_bytes[3*(TREE*g+i)+:3];  // raw, or nothing
          else if (group_tags[16*g+2*i+:2] == 2'd3) sizes[3*(TREE*g+i)+:3] <= 3'd4;
          else sizes[3*(TREE*g+i)+:3] <= {1'b0, group_tags[16*g+2*i+:2]};
        end
      end
      x_bytes <= is_bad ? {LANES{3'd4}} : in_x_bytes;
      last <= in_last;
      bad <= is_bad;
      if (in_valid) begin
        held_tags <= in_last ? 16'd0 : 16'({16'b0, group_tags[15:0]} >> (2 * TREE));
        past_end_before <= !in_last && past_end;
      end
    end
    if (rst) begin
      held_tags <= 16'd0;
      past_end_before <= 1'b0;
    end
  end
endmodule

`default_nettype wire
