// SPDX-License-Identifier: Apache-2.0
// One direction of the card, frame by frame: frames go in, the same frames come out in order, those of data packed
// (UNPACKS = 0, host to wire) or unpacked (UNPACKS = 1, wire to host), with lengths and checksums to match; all
// others as they are. docs/format.md says what a packed frame is. Store and forward: a frame leaves when its last byte
// has been judged.
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
    input wire logic [15:0] cfg_least,  // payload bytes of a frame that is worth it
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
      .clk(clk),
      .rst(rst),
      .s_data(s_axis_tdata),
      .s_keep(s_axis_tkeep),
      .s_last(s_axis_tlast),
      .s_valid(takes),
      .can_take(p_can_take),
      .valid(p_valid),
      .ready(p_ready),
      .plain(p_plain),
      .is_packed(p_packed),
      .is_v6(p_v6),
      .is_udp(p_udp),
      .dscp(p_dscp),
      .l3(p_l3),
      .l4(p_l4),
      .payload(p_payload),
      .ip_end(p_end),
      .ip_length(p_length),
      .hop_word(p_hop),
      .ip_checksum(p_ip_sum),
      .l4_checksum(p_l4_sum),
      .shim(p_shim),
      .shim_checksum(p_shim_sum)
  );

  logic [W-1:0] raw_data, body_data;
  logic [LEN_W-1:0] raw_bytes, body_bytes;
  logic raw_last, raw_valid, raw_ready, body_last, body_valid, body_ready;
  packet_fifo #(
      .N(BEAT_W),
      .DEPTH(STORE / B),
      .ALWAYS_KEEP(1'b1)
  ) raw_store (
      .clk(clk),
      .rst(rst),
      .s_data({s_axis_tlast, in_bytes, s_axis_tdata}),
      .s_valid(takes),
      .s_ready(raw_room),
      .keep(1'b0),
      .discard(1'b0),
      .m_data({raw_last, raw_bytes, raw_data}),
      .m_valid(raw_valid),
      .m_ready(raw_ready)
  );
  packet_fifo #(
      .N(BEAT_W),
      .DEPTH(64),
      .ALWAYS_KEEP(1'b1)
  ) body_store (
      .clk(clk),
      .rst(rst),
      .s_data({s_axis_tlast, in_bytes, s_axis_tdata}),
      .s_valid(takes),
      .s_ready(body_room),
      .keep(1'b0),
      .discard(1'b0),
      .m_data({body_last, body_bytes, body_data}),
      .m_valid(body_valid),
      .m_ready(body_ready)
  );

  // ---- The judge: reads a frame once, gives its payload to the engine, sums, and decides.
  typedef enum logic [2:0] {WAITS, READS, ENGINE, SUMS, DECIDES, RESTS} judge_t;
  judge_t judge;
  logic wanted, v6, udp, frame_ended, is_cut, feeds_any, engine_done;
  logic [7:0] l3, l4, payload, first;
  logic [15:0] ip_end, ip_length, hop, ip_sum, l4_sum, shim_sum, at;
  logic [31:0] shim;
  logic [2:0] settle;
  logic now_exact, now_literal;  // of this frame
  logic [6:0] now_bound;

  // Of the beat in front: which bytes count in which sum, and which go to the engine.
  logic [W-1:0] head_masked, pay_masked, feed_data;
  logic [15:0] addresses, addresses_end;
  logic [B-1:0] feed_mask;
  logic [15:0] here;
  logic [LEN_W-1:0] feed_from, feed_to;
  logic feed_last, feed_any, feed_ready, reads, past_end;
  assign addresses = {8'b0, l3} + (v6 ? 16'd8 : 16'd12);
  assign addresses_end = {8'b0, l3} + (v6 ? 16'd40 : 16'd20);

  always_comb begin
    head_masked = '0;
    pay_masked = '0;
    here = at;
    for (int i = 0; i < B; i++) begin
      here = at + 16'(i);
      if ((here >= addresses && here < addresses_end) || (here >= {8'b0, l4} && here < {8'b0, payload}))
        head_masked[8*i+:8] = body_data[8*i+:8];
      if (here >= {8'b0, payload} && here < ip_end) pay_masked[8*i+:8] = body_data[8*i+:8];
      feed_mask[i] = here >= {8'b0, first} && here < ip_end && LEN_W'(i) < body_bytes;
    end
    feed_from = '0;
    for (int i = B - 1; i >= 0; i--) if (feed_mask[i]) feed_from = LEN_W'(i);
    feed_to = '0;
    for (int i = 0; i < B; i++) if (feed_mask[i]) feed_to = LEN_W'(i + 1);
    feed_any = |feed_mask;
    past_end = ip_end <= at + 16'(body_bytes);
    feed_last = past_end || body_last;
    feed_data = '0;
    for (int i = 0; i < B; i++) if (feed_mask[i]) feed_data[8*i+:8] = body_data[8*i+:8];
    feed_data = feed_data >> {feed_from, 3'b0};
  end
  assign reads = judge == READS && body_valid && (feed_ready || !feed_any);
  assign body_ready = reads || judge == RESTS;

  // The payload without the headers, to the engine.
  logic [W-1:0] fed_data, made_data;
  logic [B-1:0] fed_keep, made_keep;
  logic fed_last, fed_valid, fed_ready, made_last, made_valid, made_ready;
  logic [16:0] fed_info;
  align #(
      .W(W)
  ) payload_to_beats (
      .clk(clk),
      .rst(rst),
      .in_data({{(8 * ((W > 256) ? W / 128 : 2)) {1'b0}}, feed_data}),
      .in_bytes(feed_to - feed_from),
      .in_last(feed_last),
      .in_info(17'b0),
      .in_valid(judge == READS && body_valid && feed_any),
      .in_ready(feed_ready),
      .out_data(fed_data),
      .out_keep(fed_keep),
      .out_last(fed_last),
      .out_info(fed_info),
      .out_valid(fed_valid),
      .out_ready(fed_ready)
  );
  wire logic unused = &{1'b0, fed_info};

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
        .s_axis_tuser({shim[23:16], shim[15:0]}),
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
        .cfg_literal(now_literal),
        .cfg_bound(now_bound),
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
    wire logic unused_here = &{1'b0, same_bytes, shim[23]};
  end

  logic [LEN_W-1:0] made_bytes;
  logic [B-1:0] made_end;
  logic made_room, keeps, discards, made_takes, is_exact, is_bad;
  logic [15:0] made_total;
  always_comb begin
    made_end = made_keep & ~(made_keep >> 1);
    made_bytes = '0;
    for (int i = 0; i < B; i++) if (made_end[i]) made_bytes = made_bytes | LEN_W'(i + 1);
  end
  assign made_ready = made_room;
  assign made_takes = made_valid && made_room;

  logic [W-1:0] coded_data;
  logic [LEN_W-1:0] coded_bytes;
  logic coded_last, coded_valid, coded_ready;
  packet_fifo #(
      .N(BEAT_W),
      .DEPTH(STORE / B)
  ) coded_store (
      .clk(clk),
      .rst(rst),
      .s_data({made_last, made_bytes, made_data}),
      .s_valid(made_valid),
      .s_ready(made_room),
      .keep(keeps),
      .discard(discards),
      .m_data({coded_last, coded_bytes, coded_data}),
      .m_valid(coded_valid),
      .m_ready(coded_ready)
  );

  // Sums, each folded to 16 bits.
  logic [15:0] head_sum, pay_sum, made_sum;
  logic clears;
  checksum #(.W(W)) of_head (.clk(clk), .clear(clears), .data(head_masked), .valid(reads), .sum(head_sum));
  checksum #(.W(W)) of_payload (.clk(clk), .clear(clears), .data(pay_masked), .valid(reads), .sum(pay_sum));
  checksum #(.W(W)) of_made (.clk(clk), .clear(clears), .data(made_data), .valid(made_takes), .sum(made_sum));

  function automatic logic [15:0] plus(input logic [15:0] a, input logic [15:0] b);
    logic [16:0] s;
    s = {1'b0, a} + {1'b0, b};
    plus = s[15:0] + {15'b0, s[16]};
  endfunction

  // What the other form of the frame has, in steps.
  logic [15:0] l4_bytes, new_l4_bytes, new_ip_length, new_hop, new_ip_sum, new_l4_sum, received, rebuilt, header_bytes;
  logic [7:0] protocol, new_protocol;
  logic [31:0] new_shim;
  logic no_sum, checks, shorter, flags_right;
  assign protocol = v6 ? hop[15:8] : hop[7:0];
  assign new_protocol = UNPACKS ? (udp ? 8'd17 : 8'd6) : (udp ? 8'd254 : 8'd253);
  assign no_sum = udp && !v6 && l4_sum == 16'd0;
  assign header_bytes = {8'b0, payload - l4};
  assign checks = no_sum || received == 16'hffff;
  assign new_shim = {7'b0001000, now_exact, now_literal, now_bound, ip_end - {8'b0, payload}};
  assign flags_right = shim[31:25] == 7'b0001000 && shim[22:16] != 7'd0 && shim[22:16] <= 7'd100;
  assign shorter = made_total + 16'(SHIM) < ip_end - {8'b0, payload};

  always_ff @(posedge clk) begin
    l4_bytes <= ip_end - {8'b0, l4};
    new_l4_bytes <= header_bytes + made_total + (UNPACKS ? 16'd0 : 16'(SHIM));
    received <= plus(plus(head_sum, pay_sum), plus({8'b0, protocol}, l4_bytes));
    new_ip_length <= ip_length - l4_bytes + new_l4_bytes;
    new_hop <= v6 ? {new_protocol, hop[7:0]} : {hop[15:8], new_protocol};
    new_ip_sum <= ~plus(plus(~ip_sum, plus(~ip_length, new_ip_length)), plus(~{8'b0, protocol}, {8'b0, new_protocol}));
    rebuilt <= plus(
        plus(plus(head_sum, ~l4_sum), plus(made_sum, {8'b0, new_protocol})),
        plus(plus(new_l4_bytes, udp ? plus(~l4_bytes, new_l4_bytes) : 16'd0),
             UNPACKS ? 16'd0 : plus(plus(new_shim[31:16], new_shim[15:0]), l4_sum))
    );
    new_l4_sum <= (udp && rebuilt == 16'hffff) ? 16'hffff : ~rebuilt;
    if (UNPACKS && shim[24]) new_l4_sum <= shim_sum;
    else if (no_sum) new_l4_sum <= 16'd0;
  end

  // The verdict waits here for the frame to leave.
  logic verdict_valid, verdict_ready, verdict_changes, verdict_drops;
  logic changes, drops;
  always_comb begin
    changes = wanted && !is_cut && checks;
    drops = 1'b0;
    if (UNPACKS) begin
      if (is_bad || !feeds_any || !flags_right || made_total != shim[15:0]) changes = 1'b0;
      drops = wanted && !changes;
    end else begin
      if (!shorter || (now_exact ? !is_exact : ip_end[1:0] != payload[1:0])) changes = 1'b0;
    end
  end
  assign p_ready = judge == WAITS;
  assign clears = judge == WAITS;
  assign keeps = judge == DECIDES && !verdict_valid && changes;
  assign discards = judge == DECIDES && !verdict_valid && !changes;

  logic chosen;
  always_comb begin
    if (UNPACKS) chosen = cfg_on && p_packed && !p_plain && p_end <= 16'(MOST) && p_shim[15:0] <= 16'(MOST);
    else
      chosen = cfg_on && !p_packed && !p_plain && p_end <= 16'(MOST) && p_dscp == cfg_dscp
               && p_end - {8'b0, p_payload} >= cfg_least;
  end

  logic [7:0] out_l3, out_l4, out_payload;
  logic [15:0] out_ip_length, out_hop, out_ip_sum, out_l4_sum, out_l4_bytes;
  logic [63:0] out_shim;
  logic out_v6, out_udp;

  always_ff @(posedge clk) begin
    {ev_passed, ev_packed, ev_inexact, ev_grown, ev_dropped} <= 5'b0;
    if (made_takes) begin
      made_total <= made_total + 16'(made_bytes);
      if (made_last) begin
        engine_done <= 1'b1;
        is_exact <= exact;
        is_bad <= bad;
      end
    end
    if (verdict_ready) verdict_valid <= 1'b0;
    case (judge)
      WAITS: begin
        at <= 16'd0;
        frame_ended <= 1'b0;
        is_cut <= 1'b0;
        feeds_any <= 1'b0;
        engine_done <= 1'b0;
        made_total <= 16'd0;
        settle <= 3'd0;
        {v6, udp, l3, l4, payload, ip_end} <= {p_v6, p_udp, p_l3, p_l4, p_payload, p_end};
        {ip_length, hop, ip_sum, l4_sum, shim, shim_sum} <= {p_length, p_hop, p_ip_sum, p_l4_sum, p_shim, p_shim_sum};
        first <= p_payload + (UNPACKS ? 8'(SHIM) : 8'd0);
        wanted <= chosen;
        {now_exact, now_literal, now_bound} <= {cfg_exact, cfg_literal, cfg_bound};
        if (p_valid) judge <= chosen ? READS : DECIDES;
      end
      READS:
      if (reads) begin
        at <= at + 16'(B);
        if (feed_any) feeds_any <= 1'b1;
        if (body_last) frame_ended <= 1'b1;
        if (feed_last) begin
          is_cut <= !past_end;
          judge <= (feeds_any || feed_any) ? ENGINE : SUMS;
        end
      end
      ENGINE: if (engine_done) judge <= SUMS;
      SUMS: begin
        settle <= settle + 3'd1;
        if (&settle) judge <= DECIDES;
      end
      DECIDES:
      if (!verdict_valid) begin
        verdict_valid <= 1'b1;
        verdict_changes <= changes;
        verdict_drops <= drops;
        ev_packed <= changes;
        ev_dropped <= drops;
        ev_passed <= !changes && !drops;
        ev_grown <= !UNPACKS && wanted && !is_cut && checks && !changes && !shorter;
        ev_inexact <= !UNPACKS && wanted && !is_cut && checks && !changes && shorter;
        {out_l3, out_l4, out_payload} <= {l3, l4, payload};
        out_v6 <= v6;
        out_udp <= udp;
        {out_ip_length, out_hop, out_ip_sum, out_l4_sum, out_l4_bytes} <=
            {new_ip_length, new_hop, new_ip_sum, new_l4_sum, new_l4_bytes};
        out_shim <= {new_shim, l4_sum, 16'd0};
        judge <= frame_ended ? WAITS : RESTS;
      end
      default: if (body_valid && body_last) judge <= WAITS;
    endcase
    if (rst) begin
      judge <= WAITS;
      verdict_valid <= 1'b0;
    end
  end

  frame_out #(
      .W(W),
      .HAS_SHIM(!UNPACKS)
  ) leaves (
      .clk(clk),
      .rst(rst),
      .verdict_valid(verdict_valid),
      .verdict_ready(verdict_ready),
      .verdict_changes(verdict_changes),
      .verdict_drops(verdict_drops),
      .out_v6(out_v6),
      .out_udp(out_udp),
      .l3(out_l3),
      .l4(out_l4),
      .payload(out_payload),
      .out_ip_length(out_ip_length),
      .out_hop(out_hop),
      .out_ip_sum(out_ip_sum),
      .out_l4_sum(out_l4_sum),
      .out_l4_bytes(out_l4_bytes),
      .out_shim(out_shim),
      .raw_data(raw_data),
      .raw_bytes(raw_bytes),
      .raw_last(raw_last),
      .raw_valid(raw_valid),
      .raw_ready(raw_ready),
      .coded_data(coded_data),
      .coded_bytes(coded_bytes),
      .coded_last(coded_last),
      .coded_valid(coded_valid),
      .coded_ready(coded_ready),
      .m_axis_tdata(m_axis_tdata),
      .m_axis_tkeep(m_axis_tkeep),
      .m_axis_tvalid(m_axis_tvalid),
      .m_axis_tready(m_axis_tready),
      .m_axis_tlast(m_axis_tlast)
  );
endmodule

`default_nettype wire
