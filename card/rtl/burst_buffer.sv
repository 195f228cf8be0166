// SPDX-License-Identifier: Apache-2.0
// The burst buffer: cuts a packet of groups into pieces of W/32 lanes, one per cycle where the bytes are there, and
// says where in a window of bytes each piece begins. At 64 and 128 bits a piece is a quarter and half of a group, at
// 512 two groups; the tags stand in front of a group's first piece and go with it.
// Where a piece that began at a byte would end is computed for every byte of a beat before one is cut there. What is
// left to do from one piece to the next is to choose one of these ends. Four beats wait in a ring, and a piece is cut
// when three are there or the packet's end is (the paper's two cannot hold the 33 bytes left by one group and the 34 of
// the next, and stand still). A packet's begin costs a cycle.
// A packet whose bytes are not those that tags and length ask for ends, at the latest with its last piece, with `bad`;
// the rest of it is skipped. Tags past its last value are not seen here.
`default_nettype none

module burst_buffer #(
    parameter int W = 256,
    localparam int B = W / 8,
    localparam int LANES = W / 32,
    localparam int GROUPS = (W > 256) ? W / 256 : 1,
    localparam int PARTS = (W < 256) ? 256 / W : 1,
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
    input wire logic en,  // all but the first register moves in enabled cycles only
    output logic [WINDOW-1:0] window,
    output logic [START_W*GROUPS-1:0] start,  // of each group's bytes in the window, its tags among them
    output logic [GROUPS-1:0] has_tags,
    output logic [8*GROUPS-1:0] has_value,  // of a group's lanes, on this piece and those after it
    output logic [3*LANES-1:0] x_bytes,  // bytes that a lane gives: 4, at the packet's end less
    output logic [7:0] shift1,
    output logic [7:0] shift2,
    output logic last,
    output logic bad,
    output logic valid
);
  localparam int OFF_W = $clog2(B);
  localparam int TREE = LANES / GROUPS;
  localparam int TO_W = $clog2(B + 4 * TREE + 2);
  localparam int SLOT_W = 4;  // places in the ring, counted on: no two that are compared are 8 apart
  localparam int PTR_W = SLOT_W + OFF_W;

  function automatic logic [4:0] sizes_of(input logic [7:0] tags);
    sizes_of = 5'd0;
    for (int i = 0; i < 4; i++) sizes_of = sizes_of + ((tags[2*i+:2] == 2'd3) ? 5'd4 : {3'b0, tags[2*i+:2]});
  endfunction
  localparam logic [7:0] OF_PIECE = (TREE == 2) ? 8'h0f : 8'hff;  // of a byte of tags

  // A beat, and what each of its bytes would stand for as tags.
  logic [W-1:0] a_data;
  logic [5*B-1:0] a_sizes;
  logic [OFF_W:0] a_bytes, in_bytes;
  logic [B-1:0] in_end;
  logic [USER_W-1:0] a_user;
  logic a_last, a_valid, writes;
  always_comb begin
    in_end = s_axis_tkeep & ~(s_axis_tkeep >> 1);
    in_bytes = '0;
    for (int i = 0; i < B; i++) if (in_end[i]) in_bytes = in_bytes | (OFF_W + 1)'(i + 1);
  end
  assign s_axis_tready = !a_valid || writes;
  always_ff @(posedge clk) begin
    if (s_axis_tready) begin
      a_valid <= s_axis_tvalid;
      a_data <= s_axis_tdata;
      a_bytes <= in_bytes;
      a_last <= s_axis_tlast;
      a_user <= s_axis_tuser;
      for (int i = 0; i < B; i++) a_sizes[5*i+:5] <= sizes_of(s_axis_tdata[8*i+:8] & OF_PIECE);
    end
    if (rst) a_valid <= 1'b0;
  end

  // The ring: beats, and of each of their bytes where a piece that begins there ends. Of a beat's last byte the next
  // beat says it, as tags are two bytes.
  logic [SLOT_W-1:0] tail;
  logic [W-1:0] data[4];
  logic [TO_W*B-1:0] to[4];
  logic [USER_W-1:0] user[4];
  logic [4:0] size_before;
  for (genvar i = 0; i < 4; i++) begin : place
    logic fills;
    assign fills = writes && tail[1:0] == 2'(i);
    always_ff @(posedge clk) begin
      if (fills) begin
        data[i] <= a_data;
        user[i] <= a_user;
      end
      for (int p = 0; p < B; p++) begin
        if (PARTS > 1) begin
          if (fills) to[i][TO_W*p+:TO_W] <= TO_W'(p + 2) + TO_W'(a_sizes[5*p+:5]);
        end else if (p < B - 1) begin
          if (fills) to[i][TO_W*p+:TO_W] <= TO_W'(p + 2) + TO_W'(a_sizes[5*p+:5]) + TO_W'(a_sizes[5*((p+1)%B)+:5]);
        end else if (writes && tail[1:0] == 2'(i + 1)) begin
          to[i][TO_W*p+:TO_W] <= TO_W'(p + 2) + TO_W'(size_before) + TO_W'(a_sizes[4:0]);
        end
        if (rst) to[i][TO_W*p+:TO_W] <= TO_W'(p + 2);  // never back, whatever is asked for
      end
    end
  end
  always_ff @(posedge clk) begin
    if (writes) begin
      tail <= tail + 1'b1;
      size_before <= a_sizes[5*(B-1)+:5];
    end
    if (rst) tail <= '0;
  end

  // Ends of packets: first that of the packet that is cut, which may have left the ring, then those in the ring.
  logic [PTR_W-1:0] end_at[5], in_end_at;
  logic [SLOT_W-1:0] end_next[5];
  logic [2:0] ends, ends_now;
  logic end_seen, end_known, done;  // known: since a cycle ago, so that all ends of pieces are there
  assign ends_now = ends - {2'b0, done};
  assign in_end_at = {tail, {OFF_W{1'b0}}} + PTR_W'(a_bytes);
  for (genvar i = 0; i < 5; i++) begin : end_of
    always_ff @(posedge clk) begin
      if (3'(i) >= ends_now) {end_at[i], end_next[i]} <= {in_end_at, SLOT_W'(tail + 1'b1)};
      else if (done) {end_at[i], end_next[i]} <= {end_at[(i+1)%5], end_next[(i+1)%5]};
    end
  end
  always_ff @(posedge clk) begin
    ends <= ends_now + {2'b0, writes && a_last};
    end_known <= ends_now != 3'd0;
    end_seen <= ends_now != 3'd0 || (writes && a_last);
    if (rst) begin
      ends <= '0;
      {end_seen, end_known} <= 2'b00;
    end
  end

  // From a piece's begin to its end, which is the next one's begin.
  typedef enum logic [1:0] {IDLE, CUTS, ENDS, SKIPS} state_t;
  state_t state;
  logic loads, cuts;
  logic [SLOT_W-1:0] slot, held, behind_end;
  logic [OFF_W-1:0] off;
  logic [GROUPS-1:0] piece_has_tags;
  logic [TO_W-1:0] first_to, step;
  logic [PTR_W-1:0] next;
  logic [TO_W-1:0] slot_to[4];
  for (genvar i = 0; i < 4; i++) begin : choice
    logic [8*B-1:0] padded;  // to a power of two: another stride would want a multiplier
    always_comb for (int p = 0; p < B; p++) padded[8*p+:8] = 8'(to[i][TO_W*p+:TO_W]);
    assign slot_to[i] = TO_W'(padded[{off, 3'b0}+:8]);
  end
  assign first_to = slot_to[slot[1:0]];

  if (GROUPS > 1) begin : two
    // Two groups ahead: of the beat that came last, with what the one that comes says of the second group.
    localparam int TWO_W = TO_W + 1;
    logic [TWO_W*B-1:0] pair_ends, to_two[4];
    logic [TO_W*B-1:0] sums, sums_before;  // of the sizes that a byte and the next would stand for: 0 to 32
    logic [TWO_W*33-1:0] options;
    logic [TWO_W-1:0] slot_two[4], two_to;
    logic [5:0] both;
    always_comb begin
      for (int p = 0; p < B; p++)
        sums[TO_W*p+:TO_W] = TO_W'(a_sizes[5*p+:5]) + ((p < B - 1) ? TO_W'(a_sizes[5*((p+1)%B)+:5]) : '0);
      options = '0;
      pair_ends = '0;
      for (int p = 0; p < B; p++) begin
        for (int k = 0; k <= 32; k++) begin
          if (p + 2 + k < B)
            options[TWO_W*k+:TWO_W] = TWO_W'(p + k + 4) + TWO_W'(sums_before[TO_W*((p+2+k)%B)+:TO_W])
                                      + ((p + 2 + k == B - 1) ? TWO_W'(a_sizes[4:0]) : '0);
          else options[TWO_W*k+:TWO_W] = TWO_W'(p + k + 4) + TWO_W'(sums[TO_W*((p+2+k)%B)+:TO_W]);
        end
        both = 6'(sums_before[TO_W*p+:TO_W]) + ((p == B - 1) ? 6'(a_sizes[4:0]) : '0);
        pair_ends[TWO_W*p+:TWO_W] = both[5] ? options[TWO_W*32+:TWO_W] : options[{1'b0, both[4:0], 3'b0}+:TWO_W];
      end
    end
    for (genvar i = 0; i < 4; i++) begin : place
      always_ff @(posedge clk) if (tail[1:0] == 2'(i + 1)) to_two[i] <= pair_ends;
      assign slot_two[i] = to_two[i][{off, 3'b0}+:TWO_W];
    end
    always_ff @(posedge clk) begin
      if (writes) sums_before <= sums;
      if (rst) sums_before <= '0;
    end
    assign two_to = slot_two[slot[1:0]];
    assign step = piece_has_tags[0] ? first_to : TO_W'(off);
    assign next = piece_has_tags[1] ? {slot + SLOT_W'(two_to[TWO_W-1:OFF_W]), two_to[OFF_W-1:0]}
                                    : {slot + SLOT_W'(step[TO_W-1:OFF_W]), step[OFF_W-1:0]};
  end else begin : one
    logic [TO_W-1:0] without_tags;
    if (PARTS > 1) begin : narrow  // sizes of a group's parts behind the first
      logic [15:0] held_tags, group_tags;
      logic [31:0] ahead;
      assign ahead = 32'({data[slot[1:0]+2'd1][7:0], data[slot[1:0]]} >> {off, 3'b0});
      assign group_tags = piece_has_tags[0] ? ahead[15:0] : held_tags;
      assign without_tags = TO_W'(off) + TO_W'(sizes_of(held_tags[7:0] & OF_PIECE));
      wire logic unused = &{1'b0, ahead[31:16]};
      always_ff @(posedge clk) begin
        if (loads) held_tags <= '0;
        else if (cuts) held_tags <= group_tags >> (2 * LANES);
      end
    end else begin : wide
      assign without_tags = TO_W'(off);
    end
    assign step = piece_has_tags[0] ? first_to : without_tags;
    assign next = {slot + SLOT_W'(step[TO_W-1:OFF_W]), step[OFF_W-1:0]};
  end

  // What is known of a piece before it is cut.
  logic [USER_W-1:0] new_user;
  logic [SLOT_W-1:0] new_slot;
  localparam int META_W = 1 + 9 * GROUPS + 3 * LANES;
  logic [15:0] to_come;  // bytes of the packet that are not cut yet
  logic [3*LANES-1:0] piece_x_bytes;
  logic [8*GROUPS-1:0] piece_has_value;
  logic piece_ends, at_group;
  logic [7:0] packet_user;
  logic [1:0] raw_bytes;

  if (PARTS > 1) begin : parts
    logic [$clog2(PARTS)-1:0] part;
    assign at_group = &part;
    always_ff @(posedge clk) begin
      if (loads) part <= '0;
      else if (cuts) part <= part + 1'b1;
    end
  end else begin : whole
    assign at_group = 1'b1;
  end

  assign new_slot = (state == IDLE) ? slot : end_next[0];
  assign new_user = user[new_slot[1:0]];
  assign loads = (state == IDLE || done) && tail != new_slot;
  // Of the piece that begins `by` lanes behind what is to come: nothing is subtracted before it is compared.
  function automatic logic [META_W-1:0] known_of(input logic [15:0] bytes, input int by, input logic begins_group);
    logic [3*LANES-1:0] lanes;
    logic [8*GROUPS-1:0] values;
    logic [GROUPS-1:0] with_tags;
    for (int i = 0; i < LANES; i++)
      lanes[3*i+:3] = (bytes[15:2] > 14'(by + i)) ? 3'd4 : (bytes[15:2] == 14'(by + i)) ? {1'b0, bytes[1:0]} : 3'd0;
    for (int i = 0; i < 8 * GROUPS; i++) values[i] = bytes[15:2] > 14'(by + i);
    for (int g = 0; g < GROUPS; g++) with_tags[g] = begins_group && bytes[15:2] > 14'(by + 8 * g);
    known_of = {bytes <= 16'(4 * by + B), with_tags, values, lanes};
  endfunction
  always_ff @(posedge clk) begin
    if (cuts) begin
      to_come <= to_come - 16'(B);
      {piece_ends, piece_has_tags, piece_has_value, piece_x_bytes} <= known_of(to_come, LANES, at_group);
    end
    if (loads) begin
      to_come <= new_user[15:0];
      {piece_ends, piece_has_tags, piece_has_value, piece_x_bytes} <= known_of(new_user[15:0], 0, 1'b1);
    end
    if (loads) {packet_user, raw_bytes} <= {new_user[23:16], new_user[1:0]};
  end

  assign held = tail - slot;
  assign behind_end = tail - end_next[0];  // a piece that is too short for its tags may end anywhere, so held is not enough
  assign writes = a_valid && en && held <= SLOT_W'(3) && (!end_seen || behind_end <= SLOT_W'(3));
  assign cuts = state == CUTS && en && (end_known || held >= SLOT_W'(3));

  // The piece that was cut last: {slot, off} is its end now.
  logic [1:0] cut_slot;
  logic [OFF_W-1:0] cut_off;
  logic [TO_W-1:0] cut_to;
  logic [GROUPS-1:0] cut_has_tags;
  logic [8*GROUPS-1:0] cut_has_value;
  logic [3*LANES-1:0] cut_x_bytes;
  logic cut_ends, cut_valid, too_short, ends_right;
  logic [PTR_W-1:0] behind;  // bytes of the packet behind it
  assign behind = end_at[0] - {slot, off};
  assign too_short = end_seen && behind[PTR_W-1];
  assign ends_right = end_seen && behind == PTR_W'(raw_bytes);
  assign done = ((en && cut_valid && cut_ends) || state == SKIPS) && end_seen;

  logic [7:0] e_low, e_middle, e_top, new_shift1, new_shift2;
  class_edges edges (
      .literal(packet_user[7]),
      .bound(packet_user[6:0]),
      .e_low(e_low),
      .e_middle(e_middle),
      .e_top(e_top),
      .shift1(new_shift1),
      .shift2(new_shift2)
  );
  wire logic unused = &{1'b0, e_low, e_middle, e_top};

  always_ff @(posedge clk) begin
    case (state)
      IDLE: if (loads) state <= CUTS;
      CUTS: begin
        if (cuts && piece_ends) state <= ENDS;
        if (en && cut_valid && too_short) state <= SKIPS;
      end
      ENDS: begin
        if (done) state <= loads ? CUTS : IDLE;
        else if (en) state <= SKIPS;
      end
      default: if (done) state <= loads ? CUTS : IDLE;
    endcase
    if (done) {slot, off} <= {end_next[0], {OFF_W{1'b0}}};
    else if (state == SKIPS) {slot, off} <= {tail, {OFF_W{1'b0}}};
    else if (cuts) {slot, off} <= next;
    if (en) begin
      cut_valid <= cuts && !(cut_valid && too_short);
      cut_slot <= slot[1:0];
      cut_off <= off;
      cut_to <= first_to;
      {cut_has_tags, cut_has_value} <= {piece_has_tags, piece_has_value};
      {cut_x_bytes, cut_ends} <= {piece_x_bytes, piece_ends};

      valid <= cut_valid;
      window <= WINDOW'({data[cut_slot+2'd2], data[cut_slot+2'd1], data[cut_slot]});
      start[START_W-1:0] <= {1'b0, cut_off};
      {has_tags, has_value} <= {cut_has_tags, cut_has_value};
      x_bytes <= cut_x_bytes;
      {shift1, shift2} <= {new_shift1, new_shift2};
      last <= cut_ends || too_short;
      bad <= cut_ends ? !ends_right : too_short;
    end
    if (rst) begin
      state <= IDLE;
      {slot, off} <= '0;
      cut_valid <= 1'b0;
      valid <= 1'b0;
    end
  end
  if (GROUPS > 1) begin : second_start
    always_ff @(posedge clk) if (en) start[2*START_W-1:START_W] <= cut_has_tags[0] ? cut_to : {1'b0, cut_off};
  end else begin : no_second
    wire logic unused_to = &{1'b0, cut_to};
  end
endmodule

`default_nettype wire
