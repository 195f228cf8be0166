// SPDX-License-Identifier: Apache-2.0
// The burst buffer and the tag decoder: cuts a packet of groups into pieces of W/32 lanes, one per cycle where the
// bytes are there, and says of each where its values' bytes begin, and of each lane its tag and bytes. Four beats wait
// here and a piece is cut from the first three (the paper's two cannot hold the 33 bytes left by one group and the 34
// of the next, and stand still). A packet's begin costs a cycle.
// A packet whose bytes are not those that tags and length ask for, or whose tags go past its last value, ends early
// with `bad`; the rest of it is skipped.
`default_nettype none

module burst_buffer #(
    parameter int W = 256,
    localparam int B = W / 8,
    localparam int LANES = W / 32,
    localparam int GROUPS = (W > 256) ? W / 256 : 1,
    localparam int PARTS = (W < 256) ? 256 / W : 1,
    localparam int LEN_W = $clog2(B) + 1,
    localparam int START_W = $clog2(B) + 1,
    localparam int WINDOW = 2 * W + 16 * GROUPS,
    localparam int USER_W = 24
) (
    input wire logic clk,
    input wire logic rst,
    input wire logic [W-1:0] s_axis_tdata,
    input wire logic [B-1:0] s_axis_tkeep,
    input wire logic s_axis_tvalid,
    output logic s_axis_tready,
    input wire logic s_axis_tlast,
    input wire logic [USER_W-1:0] s_axis_tuser,  // with the first beat: {literal, bound, bytes of the packet}
    input wire logic en,  // what is below moves in enabled cycles only
    output logic [WINDOW-1:0] window,
    output logic [START_W*GROUPS-1:0] start,  // of each group's values in the window, in bytes
    output logic [2*LANES-1:0] tags,
    output logic [3*LANES-1:0] sizes,  // bytes that stand for a lane
    output logic [3*LANES-1:0] x_bytes,  // bytes that a lane gives: 4, at the packet's end less
    output logic [7:0] shift1,
    output logic [7:0] shift2,
    output logic last,
    output logic bad,
    output logic valid
);
  localparam int ENTRY_W = W + LEN_W + 1 + USER_W;

  // The beats.
  logic [W-1:0] data[4];
  logic [LEN_W-1:0] bytes[4];
  logic ends[4];
  logic [USER_W-1:0] user[4];
  logic [2:0] count, count_next;
  logic [1:0] pops;
  logic takes;

  assign takes = s_axis_tvalid && s_axis_tready;
  assign count_next = count - {1'b0, pops} + {2'b0, takes};

  logic [ENTRY_W-1:0] entry[4];
  logic [ENTRY_W-1:0] in_entry;
  logic [B-1:0] in_end;
  logic [LEN_W-1:0] in_bytes;
  always_comb begin
    in_end = s_axis_tkeep & ~(s_axis_tkeep >> 1);
    in_bytes = '0;
    for (int i = 0; i < B; i++) if (in_end[i]) in_bytes = in_bytes | LEN_W'(i + 1);
    in_entry = {s_axis_tuser, s_axis_tlast, in_bytes, s_axis_tdata};
  end
  for (genvar i = 0; i < 4; i++) begin : place
    assign {user[i], ends[i], bytes[i], data[i]} = entry[i];
    always_ff @(posedge clk) begin
      if (3'(i) + {1'b0, pops} >= count) entry[i] <= in_entry;
      else entry[i] <= entry[(i+pops)%4];
    end
  end
  always_ff @(posedge clk) begin
    count <= count_next;
    s_axis_tready <= count_next <= 3'd3;
    if (rst) begin
      count <= '0;
      s_axis_tready <= 1'b0;
    end
  end

  // Of the packet in front: bytes in the first three places, and whether its end is there.
  logic [LEN_W+1:0] seen;
  logic end_seen;
  logic [1:0] beats_to_end;
  always_comb begin
    if (ends[0] || count == 3'd1) begin
      seen = (LEN_W + 2)'(bytes[0]);
      end_seen = ends[0];
      beats_to_end = 2'd1;
    end else if (ends[1] || count == 3'd2) begin
      seen = (LEN_W + 2)'(B) + (LEN_W + 2)'(bytes[1]);
      end_seen = ends[1];
      beats_to_end = 2'd2;
    end else begin
      seen = (LEN_W + 2)'(2 * B) + (LEN_W + 2)'(bytes[2]);
      end_seen = ends[2];
      beats_to_end = 2'd3;
    end
    if (count == 3'd0) begin
      seen = '0;
      end_seen = 1'b0;
    end
  end

  // The next piece, of which all but the tags is known before the cycle in which it is cut.
  typedef enum logic [1:0] {IDLE, CUTS, SKIPS} state_t;
  state_t state;
  logic [LEN_W-1:0] offset;  // 0..B: a beat goes when a byte behind it is asked for, or with its packet
  logic [15:0] to_come, to_come_next;  // bytes of the packet that are not decoded yet
  logic [3*LANES-1:0] piece_x_bytes;
  logic [8*GROUPS-1:0] has_value;  // of a group's lanes, on this piece and those after it
  logic [GROUPS-1:0] has_tags;
  logic piece_ends, loads, cuts;
  logic [7:0] now_shift1, now_shift2;
  logic at_group;  // of the piece that is set up in this cycle
  logic [15:0] held_tags;  // of a group's parts that are still to come
  logic [15:0] group_tags;

  if (PARTS > 1) begin : narrow
    logic [$clog2(PARTS)-1:0] part;
    assign at_group = loads || (&part);
    always_ff @(posedge clk) begin
      if (cuts) held_tags <= group_tags >> (2 * LANES);
      if (loads) part <= '0;
      else if (cuts) part <= part + 1'b1;
    end
  end else begin : wide
    assign at_group = 1'b1;
    assign held_tags = '0;
  end

  assign loads = state == IDLE && count != 3'd0;
  assign to_come_next = loads ? user[0][15:0] : to_come - 16'(B);

  logic [7:0] e_low, e_middle, e_top, new_shift1, new_shift2;
  class_edges edges (
      .literal(user[0][23]),
      .bound(user[0][22:16]),
      .e_low(e_low),
      .e_middle(e_middle),
      .e_top(e_top),
      .shift1(new_shift1),
      .shift2(new_shift2)
  );
  wire logic unused = &{1'b0, e_low, e_middle, e_top};

  always_ff @(posedge clk) begin
    if (loads || cuts) begin
      to_come <= to_come_next;
      piece_ends <= to_come_next <= 16'(B);
      for (int i = 0; i < LANES; i++)
        piece_x_bytes[3*i+:3] <= (to_come_next[15:2] > 14'(i)) ? 3'd4
                               : (to_come_next[15:2] == 14'(i)) ? {1'b0, to_come_next[1:0]} : 3'd0;
      for (int i = 0; i < 8 * GROUPS; i++) has_value[i] <= to_come_next[15:2] > 14'(i);
      for (int g = 0; g < GROUPS; g++) has_tags[g] <= at_group && to_come_next[15:2] > 14'(8 * g);
    end
    if (loads) begin
      now_shift1 <= new_shift1;
      now_shift2 <= new_shift2;
    end
  end

  // The tag decoder: from offset to the offset behind the piece in one cycle.
  function automatic logic [2:0] size_of(input logic [1:0] tag, input logic [2:0] x_bytes_of_lane);
    size_of = (tag == 2'd3) ? 3'd4 : {1'b0, tag};
    if (!x_bytes_of_lane[2]) size_of = x_bytes_of_lane;  // raw, or nothing
  endfunction

  logic [3*W-1:0] beats;
  logic [LEN_W+1:0] end_of_piece;
  logic [START_W*GROUPS-1:0] piece_start;
  logic [2*LANES-1:0] piece_tags;
  logic [3*LANES-1:0] piece_sizes;
  logic tags_past_end;
  assign beats = {data[2], data[1], data[0]};

  always_comb begin
    end_of_piece = (LEN_W + 2)'(offset);
    tags_past_end = 1'b0;
    piece_start = '0;
    piece_tags = '0;
    piece_sizes = '0;
    group_tags = held_tags;
    for (int g = 0; g < GROUPS; g++) begin
      if (has_tags[g]) begin
        group_tags = 16'(beats >> {end_of_piece, 3'b0});
        end_of_piece = end_of_piece + (LEN_W + 2)'(2);
        for (int i = 0; i < 8; i++) if (!has_value[8*g+i] && group_tags[2*i+:2] != 2'd0) tags_past_end = 1'b1;
      end
      piece_start[START_W*g+:START_W] = end_of_piece[START_W-1:0];
      for (int i = 0; i < LANES / GROUPS; i++) begin
        piece_tags[2*(8*g+i)+:2] = group_tags[2*i+:2];
        piece_sizes[3*(8*g+i)+:3] = size_of(group_tags[2*i+:2], piece_x_bytes[3*(8*g+i)+:3]);
        end_of_piece = end_of_piece + (LEN_W + 2)'(piece_sizes[3*(8*g+i)+:3]);
      end
    end
  end

  logic too_short, is_bad, is_last, on_edge;
  assign on_edge = end_of_piece[LEN_W-2:0] == '0 && end_of_piece != '0;
  assign too_short = end_seen && end_of_piece > seen;
  assign cuts = state == CUTS && en && (end_of_piece <= seen || too_short);
  assign is_bad = too_short || tags_past_end || (piece_ends && !(end_seen && end_of_piece == seen));
  assign is_last = piece_ends || is_bad;

  always_comb begin
    pops = 2'd0;
    if (state == SKIPS && count != 3'd0) pops = 2'd1;
    if (cuts) begin
      if (!is_last) pops = end_of_piece[LEN_W:LEN_W-1] - {1'b0, on_edge};
      else if (end_seen) pops = beats_to_end;
    end
  end

  always_ff @(posedge clk) begin
    case (state)
      IDLE: if (loads) state <= CUTS;
      CUTS: if (cuts && is_last) state <= end_seen ? IDLE : SKIPS;
      default: if (count != 3'd0 && ends[0]) state <= IDLE;
    endcase
    if (loads) offset <= '0;
    else if (cuts) offset <= {on_edge, end_of_piece[LEN_W-2:0]};
    if (en) begin
      valid <= cuts;
      window <= beats[WINDOW-1:0];
      start <= piece_start;
      tags <= is_bad ? '0 : piece_tags;
      sizes <= piece_sizes;
      x_bytes <= is_bad ? {LANES{3'd4}} : piece_x_bytes;
      shift1 <= now_shift1;
      shift2 <= now_shift2;
      last <= is_last;
      bad <= is_bad;
    end
    if (rst) begin
      state <= IDLE;
      valid <= 1'b0;
    end
  end
endmodule

`default_nettype wire
