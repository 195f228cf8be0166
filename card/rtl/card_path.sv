// SPDX-License-Identifier: Apache-2.0
// One direction of the card, frame by frame: frames go in, the same frames come out in order, those of data packed
// (UNPACKS = 0, host to wire) or unpacked (UNPACKS = 1, wire to host), with lengths and checksums to match; all
// others as they are. docs/reference/format_card.md says what a packed frame is. Store and forward: a frame leaves when
// its last byte has been judged.
//
//   passed     not data, or not to be packed: untouched
//   packed     (unpacked)
//   inexact    would not come back bit for bit, in exact mode: untouched
//   grown      would not get shorter: untouched
//   dropped    packed frames whose checksum, length or groups are wrong; only when unpacking
`default_nettype none

module card_path #(
    parameter int W = 256,
    parameter bit UNPACKS = 1'b0,
    parameter int STORE = 16384,  // bytes of each of the two stores of frames
    localparam int B = W / 8
) (
    input wire logic clk,
    input wire logic rst,
    input wire logic cfg_on,
    input wire logic cfg_exact,
    input wire logic cfg_literal,
    input wire logic [6:0] cfg_bound,
    input wire logic [5:0] cfg_dscp,  // the upper six bits of the ToS byte
    input wire logic [15:0] cfg_min_bytes,  // payload bytes of a frame that is worth it
    input wire logic [W-1:0] s_axis_tdata,
    input wire logic [B-1:0] s_axis_tkeep,
    input wire logic s_axis_tvalid,
    output logic s_axis_tready,
    input wire logic s_axis_tlast,
    output logic [W-1:0] m_axis_tdata,
    output logic [B-1:0] m_axis_tkeep,
    output logic m_axis_tvalid,
    input wire logic m_axis_tready,
    output logic m_axis_tlast,
    output logic ev_passed,  // events, one cycle each
    output logic ev_packed,
    output logic ev_inexact,
    output logic ev_grown,
    output logic ev_dropped
);
  localparam int LEN_W = $clog2(B) + 1;
  localparam int BEAT_W = W + LEN_W + 1;
  localparam int LOG_B = $clog2(B);
  localparam int BEATS_W = 16 - LOG_B;
  localparam int MOST = 9216;  // bytes to the end of the IP packet, of a frame that is touched
  localparam int SHIM = 8;

  // ---- In: to both stores, past the parser.
  logic p_can_take, p_valid, p_ready, p_plain, p_packed, p_v6, p_udp;
  logic [5:0] p_dscp;
  logic [7:0] p_l3, p_l4, p_payload;
  logic [15:0] p_end, p_length, p_hop, p_ip_sum, p_l4_sum, p_shim_sum;
  logic [31:0] p_shim;
  logic takes, raw_room, body_room;
  logic [LEN_W-1:0] in_bytes;
  logic [B-1:0] last_byte;

  always_comb begin
    last_byte = s_axis_tkeep & ~(s_axis_tkeep >> 1);
    in_bytes = '0;
    for (int i = 0; i < B; i++) if (last_byte[i]) in_bytes = in_bytes | LEN_W'(i + 1);
  end
  assign s_axis_tready = raw_room && body_room && p_can_take;
  assign takes = s_axis_tvalid && s_axis_tready;

  parse #(
      .W(W)
  ) parser (
      .clk(clk), .rst(rst), .s_data(s_axis_tdata), .s_keep(s_axis_tkeep), .s_last(s_axis_tlast), .s_valid(takes),
      .can_take(p_can_take), .valid(p_valid), .ready(p_ready), .plain(p_plain), .is_packed(p_packed), .is_v6(p_v6),
      .is_udp(p_udp), .dscp(p_dscp), .l3(p_l3), .l4(p_l4), .payload(p_payload), .ip_end(p_end), .ip_length(p_length),
      .hop_word(p_hop), .ip_checksum(p_ip_sum), .l4_checksum(p_l4_sum), .shim(p_shim), .shim_checksum(p_shim_sum)
  );

  logic [W-1:0] raw_data, body_data;
  logic [LEN_W-1:0] raw_bytes, body_bytes;
  logic raw_last, raw_valid, raw_ready, body_last, body_valid, body_ready;
  packet_fifo #(
      .N(BEAT_W),
      .DEPTH(STORE / B),
      .ALWAYS_KEEP(1'b1)
  ) raw_store (
      .clk(clk), .rst(rst), .s_data({s_axis_tlast, in_bytes, s_axis_tdata}), .s_valid(takes), .s_ready(raw_room),
      .keep(1'b0), .discard(1'b0), .m_data({raw_last, raw_bytes, raw_data}), .m_valid(raw_valid), .m_ready(raw_ready)
  );
  packet_fifo #(
      .N(BEAT_W),
      .DEPTH(64),
      .ALWAYS_KEEP(1'b1)
  ) body_store (
      .clk(clk), .rst(rst), .s_data({s_axis_tlast, in_bytes, s_axis_tdata}), .s_valid(takes), .s_ready(body_room),
      .keep(1'b0), .discard(1'b0), .m_data({body_last, body_bytes, body_data}), .m_valid(body_valid),
      .m_ready(body_ready)
  );

  // ---- The reader reads a frame once, gives its payload to the engine, and sums; the judge waits for what the engine
  // makes of it, and decides. So the next frame is read while the engine still has this one.
  typedef struct packed {
    logic v6, udp, wanted, exact, literal;
    logic [6:0] bound;
    logic [7:0] l3, l4, payload;
    logic [15:0] ip_end, ip_length, hop, ip_sum, l4_sum, shim_sum;
    logic [31:0] shim;
  } frame_t;
  frame_t r, j;  // the reader's, the judge's
  typedef enum logic [2:0] {WAITS, READS, SETTLES, HANDS, RESTS} reader_t;
  typedef enum logic [1:0] {FREE, ENGINE, SUMS, DECIDES} judge_t;
  reader_t reader;
  judge_t judge;
  logic frame_ended, is_cut, feeds_any, settled;

  // Masks say which bytes of the beat in front count in which sum, and which go to the engine. They are known a cycle
  // before it is in front. A beat begins at a multiple of B: its number is compared with the upper bits of places, a
  // byte's place in it with the lower ones.
  function automatic logic [B-1:0] from_on(input logic [15:0] place, input logic [BEATS_W-1:0] beat);
    for (int i = 0; i < B; i++)
      from_on[i] = beat > place[15:LOG_B] || (beat == place[15:LOG_B] && LOG_B'(i) >= place[LOG_B-1:0]);
  endfunction
  logic [W-1:0] head_masked, pay_masked, feed_data;
  logic [B-1:0] head_mask, pay_mask, feed_mask, next_head_mask, next_pay_mask, next_feed_mask;
  logic [BEATS_W-1:0] next_beat;  // 0 while the reader waits
  logic next_v6;
  logic [15:0] next_l3, next_l4, next_payload, next_first, next_end;
  logic [LOG_B-1:0] feed_from, next_feed_from;
  logic [LEN_W-1:0] feed_to, feed_bytes, next_feed_to;
  logic feed_last, feed_any, feed_ready, reads, past_end, next_past_end;

  always_comb begin
    next_v6 = (reader == WAITS) ? p_v6 : r.v6;
    next_l3 = {8'b0, (reader == WAITS) ? p_l3 : r.l3};
    next_l4 = {8'b0, (reader == WAITS) ? p_l4 : r.l4};
    next_payload = {8'b0, (reader == WAITS) ? p_payload : r.payload};
    next_first = next_payload + (UNPACKS ? 16'(SHIM) : 16'd0);
    next_end = (reader == WAITS) ? p_end : r.ip_end;
    next_head_mask = (from_on(next_l3 + (next_v6 ? 16'd8 : 16'd12), next_beat)
                      & ~from_on(next_l3 + (next_v6 ? 16'd40 : 16'd20), next_beat))
                     | (from_on(next_l4, next_beat) & ~from_on(next_payload, next_beat));
    next_pay_mask = from_on(next_payload, next_beat) & ~from_on(next_end, next_beat);
    next_feed_mask = from_on(next_first, next_beat) & ~from_on(next_end, next_beat);
    next_past_end = next_end[15:LOG_B] <= next_beat
                    || (next_end[15:LOG_B] == next_beat + 1'b1 && next_end[LOG_B-1:0] == '0);
    next_feed_from = (next_first[15:LOG_B] == next_beat) ? next_first[LOG_B-1:0] : '0;
    next_feed_to = (next_past_end && next_end[LOG_B-1:0] != '0) ? {1'b0, next_end[LOG_B-1:0]} : LEN_W'(B);
  end
  always_ff @(posedge clk) begin
    if (reads || reader == WAITS) begin
      {head_mask, pay_mask, feed_mask} <= {next_head_mask, next_pay_mask, next_feed_mask};
      {past_end, feed_from, feed_to} <= {next_past_end, next_feed_from, next_feed_to};
      feed_bytes <= next_feed_to - {1'b0, next_feed_from};
      feed_any <= next_first[15:LOG_B] <= next_beat;
    end
  end

  always_comb begin
    for (int i = 0; i < B; i++) begin
      head_masked[8*i+:8] = head_mask[i] ? body_data[8*i+:8] : 8'b0;
      pay_masked[8*i+:8] = pay_mask[i] ? body_data[8*i+:8] : 8'b0;
      feed_data[8*i+:8] = feed_mask[i] ? body_data[8*i+:8] : 8'b0;
    end
    feed_data = feed_data >> {feed_from, 3'b0};
    feed_last = past_end || body_last;
  end
  assign reads = reader == READS && body_valid && (feed_ready || !feed_any);
  assign body_ready = reads || reader == RESTS;

  // The payload without the headers, to the engine.
  logic [W-1:0] beat_data, fed_data, made_data;
  logic [B-1:0] beat_keep, fed_keep, made_keep;
  logic beat_last, beat_valid, beat_ready;
  logic fed_last, fed_valid, fed_ready, made_last, made_valid, made_ready;
  logic [16:0] beat_info;
  align #(
      .W(W)
  ) payload_to_beats (
      .clk(clk), .rst(rst), .in_data({{(8 * ((W > 256) ? W / 128 : 2)) {1'b0}}, feed_data}),
      .in_bytes(feed_bytes), .in_last(feed_last), .in_info(17'b0),
      .in_valid(reader == READS && body_valid && feed_any), .in_ready(feed_ready), .out_data(beat_data),
      .out_keep(beat_keep), .out_last(beat_last), .out_info(beat_info), .out_valid(beat_valid), .out_ready(beat_ready)
  );
  // Ends the path of `ready` from the engine's end to the store's.
  axis_skid #(
      .N(W + B + 1)
  ) fed_skid (
      .clk(clk), .rst(rst), .s_data({beat_last, beat_keep, beat_data}), .s_valid(beat_valid), .s_ready(beat_ready),
      .m_data({fed_last, fed_keep, fed_data}), .m_valid(fed_valid), .m_ready(fed_ready)
  );
  // The engine gets this setting with a payload's first beat, four cycles after the reader has it.
  logic [23:0] fed_cfg;
  logic config_room, config_valid;
  packet_fifo #(
      .N(24),
      .DEPTH(8),
      .ALWAYS_KEEP(1'b1)
  ) config_store (
      .clk(clk), .rst(rst), .s_data(UNPACKS ? {r.shim[23:16], r.shim[15:0]} : {16'b0, r.literal, r.bound}),
      .s_valid(reads && feed_any && !feeds_any), .s_ready(config_room), .keep(1'b0), .discard(1'b0), .m_data(fed_cfg),
      .m_valid(config_valid), .m_ready(fed_valid && fed_ready && fed_last)
  );
  wire logic unused = &{1'b0, beat_info, config_room};
`ifndef SYNTHESIS
  always_ff @(posedge clk) begin
    assert (rst || config_room);
    assert (rst || !fed_valid || config_valid);
  end
`endif

  logic exact, bad;
  if (UNPACKS) begin : unpacks
    decompress #(
        .W(W)
    ) engine (
        .clk(clk),
        .rst(rst),
        .s_axis_tdata(fed_data),
        .s_axis_tkeep(fed_keep),
        .s_axis_tvalid(fed_valid),
        .s_axis_tready(fed_ready),
        .s_axis_tlast(fed_last),
        .s_axis_tuser(fed_cfg),
        .m_axis_tdata(made_data),
        .m_axis_tkeep(made_keep),
        .m_axis_tvalid(made_valid),
        .m_axis_tready(made_ready),
        .m_axis_tlast(made_last),
        .m_axis_tuser(bad)
    );
    assign exact = 1'b0;
  end else begin : packs
    logic [15:0] same_bytes;
    compress #(
        .W(W)
    ) engine (
        .clk(clk),
        .rst(rst),
        .cfg_literal(fed_cfg[7]),
        .cfg_bound(fed_cfg[6:0]),
        .s_axis_tdata(fed_data),
        .s_axis_tkeep(fed_keep),
        .s_axis_tvalid(fed_valid),
        .s_axis_tready(fed_ready),
        .s_axis_tlast(fed_last),
        .m_axis_tdata(made_data),
        .m_axis_tkeep(made_keep),
        .m_axis_tvalid(made_valid),
        .m_axis_tready(made_ready),
        .m_axis_tlast(made_last),
        .m_axis_tuser({exact, same_bytes})
    );
    assign bad = 1'b0;
    wire logic unused_here = &{1'b0, same_bytes, fed_cfg[23:8], r.shim[23]};
  end

  logic [LEN_W-1:0] made_bytes;
  logic [B-1:0] made_end;
  logic made_room, made_open, keeps, discards, made_takes, is_exact, is_bad;
  logic [15:0] made_total;
  logic [1:0] made_done;  // cycles since the last beat of what the engine made; no more is taken until it is judged
  assign made_open = made_done == 2'd0;
  always_comb begin
    made_end = made_keep & ~(made_keep >> 1);
    made_bytes = '0;
    for (int i = 0; i < B; i++) if (made_end[i]) made_bytes = made_bytes | LEN_W'(i + 1);
  end
  assign made_ready = made_room && made_open;
  assign made_takes = made_valid && made_ready;

  logic [W-1:0] coded_data;
  logic [LEN_W-1:0] coded_bytes;
  logic coded_last, coded_valid, coded_ready;
  packet_fifo #(
      .N(BEAT_W),
      .DEPTH(STORE / B)
  ) coded_store (
      .clk(clk), .rst(rst), .s_data({made_last, made_bytes, made_data}), .s_valid(made_valid && made_open),
      .s_ready(made_room), .keep(keeps), .discard(discards), .m_data({coded_last, coded_bytes, coded_data}),
      .m_valid(coded_valid), .m_ready(coded_ready)
  );

  // Sums, each folded to 16 bits.
  logic [15:0] head_sum, pay_sum, made_sum, j_head, j_pay, j_made, j_total;
  logic clears;
  checksum #(.W(W)) of_head (.clk(clk), .clear(clears), .data(head_masked), .valid(reads), .sum(head_sum));
  checksum #(.W(W)) of_payload (.clk(clk), .clear(clears), .data(pay_masked), .valid(reads), .sum(pay_sum));
  checksum #(.W(W)) of_made (
      .clk(clk), .clear(keeps || discards || rst), .data(made_data), .valid(made_takes), .sum(made_sum)
  );

  // What the other form of the frame has, in steps.
  logic [15:0] new_l4_bytes, new_ip_length, new_hop, new_ip_sum, new_l4_sum, pay_bytes;
  logic [31:0] new_shim;
  logic checks, shorter, flags_right;
  assign pay_bytes = j.ip_end - {8'b0, j.payload};
  assign new_shim = {7'b0001000, j.exact, j.literal, j.bound, pay_bytes};
  assign flags_right = j.shim[31:25] == 7'b0001000 && j.shim[22:16] != 7'd0 && j.shim[22:16] <= 7'd100;
  new_header #(
      .UNPACKS(UNPACKS)
  ) other_form (
      .clk(clk), .v6(j.v6), .udp(j.udp), .l4(j.l4), .payload(j.payload),
      .ip_end(j.ip_end), .ip_length(j.ip_length), .hop(j.hop), .ip_sum(j.ip_sum), .l4_sum(j.l4_sum),
      .new_shim(new_shim), .shim_sum({j.shim[24], j.shim_sum}), .made_total(j_total),
      .head_sum(j_head), .pay_sum(j_pay), .made_sum(j_made), .checks(checks),
      .new_l4_bytes(new_l4_bytes), .new_ip_length(new_ip_length), .new_hop(new_hop), .new_ip_sum(new_ip_sum),
      .new_l4_sum(new_l4_sum)
  );

  // The verdict waits here for the frame to leave.
  logic verdict_valid, verdict_ready, verdict_changes, verdict_drops;
  logic j_cut, j_changes, j_shorter, changes, right;
  logic [2:0] step;
  always_comb begin
    shorter = made_total + 16'(SHIM) < pay_bytes;
    if (UNPACKS) right = !is_bad && flags_right && made_total == j.shim[15:0];
    else right = shorter && (j.exact ? is_exact : j.ip_end[1:0] == j.payload[1:0]);
    changes = !j_cut && checks && right;  // in state ENGINE
  end
  assign p_ready = reader == WAITS;
  assign clears = reader == WAITS;
  assign keeps = judge == ENGINE && (&made_done) && (&step) && changes;
  assign discards = judge == ENGINE && (&made_done) && (&step) && !changes;

  logic chosen;
  always_comb begin
    if (UNPACKS) chosen = cfg_on && p_packed && !p_plain && p_end <= 16'(MOST) && p_shim[15:0] <= 16'(MOST);
    else
      chosen = cfg_on && !p_packed && !p_plain && p_end <= 16'(MOST) && p_dscp == cfg_dscp
               && p_end - {8'b0, p_payload} >= cfg_min_bytes;
  end

  logic [7:0] out_l3, out_l4, out_payload;
  logic [15:0] out_ip_length, out_hop, out_ip_sum, out_l4_sum, out_l4_bytes;
  logic [63:0] out_shim;
  logic out_v6, out_udp;

  always_ff @(posedge clk) begin
    {ev_passed, ev_packed, ev_inexact, ev_grown, ev_dropped} <= 5'b0;
    if (made_takes) begin
      made_total <= made_total + 16'(made_bytes);
      if (made_last) {is_exact, is_bad} <= {exact, bad};
    end
    if ((made_takes && made_last) || (!made_open && !(&made_done))) made_done <= made_done + 1'b1;
    if (verdict_ready) verdict_valid <= 1'b0;

    case (reader)
      WAITS: begin
        if (p_valid) next_beat <= BEATS_W'(1);
        {frame_ended, is_cut, feeds_any, settled} <= 4'b0;
        r <= {p_v6, p_udp, chosen, cfg_exact, cfg_literal, cfg_bound, p_l3, p_l4, p_payload,
              p_end, p_length, p_hop, p_ip_sum, p_l4_sum, p_shim_sum, p_shim};  // in frame_t's order
        if (p_valid) reader <= chosen ? READS : HANDS;
      end
      READS:
      if (reads) begin
        next_beat <= next_beat + 1'b1;
        if (feed_any) feeds_any <= 1'b1;
        if (body_last) frame_ended <= 1'b1;
        if (feed_last) begin
          is_cut <= !past_end || body_bytes < feed_to;  // what is not there is 0, and no verdict changes the frame
          reader <= SETTLES;
        end
      end
      SETTLES: begin  // the sums
        settled <= 1'b1;
        if (settled) reader <= HANDS;
      end
      HANDS: begin
        next_beat <= '0;
        if (judge == FREE) reader <= frame_ended ? WAITS : RESTS;
      end
      default: if (body_valid && body_last) reader <= WAITS;
    endcase

    step <= (&step) ? step : step + 1'b1;
    case (judge)
      FREE: begin
        {j, j_cut, j_head, j_pay} <= {r, is_cut, head_sum, pay_sum};
        j_total <= 16'd0;
        {j_changes, j_shorter} <= 2'b0;
        step <= 3'd0;
        if (reader == HANDS) judge <= feeds_any ? ENGINE : r.wanted ? SUMS : DECIDES;
      end
      ENGINE:
      if (keeps || discards) begin
        {j_changes, j_shorter} <= {changes, shorter};
        {j_total, j_made} <= {made_total, made_sum};
        made_total <= 16'd0;
        made_done <= 2'd0;
        step <= 3'd0;
        judge <= SUMS;
      end
      SUMS: if (&step) judge <= DECIDES;
      default:
      if (!verdict_valid) begin
        verdict_valid <= 1'b1;
        verdict_changes <= j_changes;
        verdict_drops <= UNPACKS && j.wanted && !j_changes;
        ev_packed <= j_changes;
        ev_dropped <= UNPACKS && j.wanted && !j_changes;
        ev_passed <= !j_changes && !(UNPACKS && j.wanted);
        ev_grown <= !UNPACKS && j.wanted && !j_cut && checks && !j_changes && !j_shorter;
        ev_inexact <= !UNPACKS && j.wanted && !j_cut && checks && !j_changes && j_shorter;
        {out_l3, out_l4, out_payload, out_v6, out_udp} <= {j.l3, j.l4, j.payload, j.v6, j.udp};
        {out_ip_length, out_hop, out_ip_sum, out_l4_sum, out_l4_bytes} <=
            {new_ip_length, new_hop, new_ip_sum, new_l4_sum, new_l4_bytes};
        out_shim <= {new_shim, j.l4_sum, 16'd0};
        judge <= FREE;
      end
    endcase
    if (rst) begin
      reader <= WAITS;
      next_beat <= '0;
      judge <= FREE;
      verdict_valid <= 1'b0;
      made_total <= 16'd0;
      made_done <= 2'd0;
    end
  end

  frame_out #(
      .W(W),
      .HAS_SHIM(!UNPACKS)
  ) leaves (
      .clk(clk), .rst(rst), .verdict_valid(verdict_valid), .verdict_ready(verdict_ready),
      .verdict_changes(verdict_changes), .verdict_drops(verdict_drops), .out_v6(out_v6), .out_udp(out_udp),
      .l3(out_l3), .l4(out_l4), .payload(out_payload), .out_ip_length(out_ip_length), .out_hop(out_hop),
      .out_ip_sum(out_ip_sum), .out_l4_sum(out_l4_sum), .out_l4_bytes(out_l4_bytes), .out_shim(out_shim),
      .raw_data(raw_data), .raw_bytes(raw_bytes), .raw_last(raw_last), .raw_valid(raw_valid), .raw_ready(raw_ready),
      .coded_data(coded_data), .coded_bytes(coded_bytes), .coded_last(coded_last), .coded_valid(coded_valid),
      .coded_ready(coded_ready), .m_axis_tdata(m_axis_tdata), .m_axis_tkeep(m_axis_tkeep),
      .m_axis_tvalid(m_axis_tvalid), .m_axis_tready(m_axis_tready), .m_axis_tlast(m_axis_tlast)
  );
endmodule

`default_nettype wire
