// SPDX-License-Identifier: Apache-2.0
// A judged frame leaves: as it is, or its headers with new words, the shim where it has one, and what the engine
// made; or not at all.
`default_nettype none

module frame_out #(
    parameter int W = 256,
    parameter bit HAS_SHIM = 1'b0,
    localparam int B = W / 8,
    localparam int LEN_W = $clog2(B) + 1
) (
    input wire logic clk,
    input wire logic rst,
    input wire logic verdict_valid,
    output logic verdict_ready,
    input wire logic verdict_changes,
    input wire logic verdict_drops,
    input wire logic out_v6,
    input wire logic out_udp,
    input wire logic [7:0] l3,
    input wire logic [7:0] l4,
    input wire logic [7:0] payload,
    input wire logic [15:0] out_ip_length,
    input wire logic [15:0] out_hop,
    input wire logic [15:0] out_ip_sum,
    input wire logic [15:0] out_l4_sum,
    input wire logic [15:0] out_l4_bytes,
    input wire logic [63:0] out_shim,
    input wire logic [W-1:0] raw_data,
    input wire logic [LEN_W-1:0] raw_bytes,
    input wire logic raw_last,
    input wire logic raw_valid,
    output logic raw_ready,
    input wire logic [W-1:0] coded_data,
    input wire logic [LEN_W-1:0] coded_bytes,
    input wire logic coded_last,
    input wire logic coded_valid,
    output logic coded_ready,
    output logic [W-1:0] m_axis_tdata,
    output logic [B-1:0] m_axis_tkeep,
    output logic m_axis_tvalid,
    input wire logic m_axis_tready,
    output logic m_axis_tlast
);
  localparam int SHIM = 8;
  localparam int LOG_B = $clog2(B);
  localparam int BEATS_W = 16 - LOG_B;
  logic [15:0] out_l3, out_l4, out_payload, out_length_at, out_hop_at, out_ip_sum_at, out_l4_sum_at;
  assign out_l3 = {8'b0, l3};
  assign out_l4 = {8'b0, l4};
  assign out_payload = {8'b0, payload};
  assign out_length_at = out_l3 + (out_v6 ? 16'd4 : 16'd2);
  assign out_hop_at = out_l3 + (out_v6 ? 16'd6 : 16'd8);
  assign out_ip_sum_at = out_l3 + 16'd10;
  assign out_l4_sum_at = out_l4 + (out_udp ? 16'd6 : 16'd16);

  typedef enum logic [1:0] {HEADERS, SHIMS, CODED, SKIPS} out_t;
  out_t out;
  logic [BEATS_W-1:0] out_beat;  // a beat begins at a multiple of B: places are compared with its number
  logic [W-1:0] patched, piece;
  logic [B-1:0] header;
  logic [15:0] here;
  logic [LEN_W-1:0] piece_bytes;
  logic piece_last, piece_valid, piece_ready, raw_ended, head_ends, whole_frame;

  always_comb begin
    patched = raw_data;
    here = '0;
    for (int i = 0; i < B; i += 2) begin
      here = {out_beat, LOG_B'(i)};
      if (here == out_length_at) patched[8*i+:16] = {out_ip_length[7:0], out_ip_length[15:8]};
      if (here == out_hop_at) patched[8*i+:16] = {out_hop[7:0], out_hop[15:8]};
      if (here == out_ip_sum_at && !out_v6) patched[8*i+:16] = {out_ip_sum[7:0], out_ip_sum[15:8]};
      if (here == out_l4 + 16'd4 && out_udp) patched[8*i+:16] = {out_l4_bytes[7:0], out_l4_bytes[15:8]};
      if (here == out_l4_sum_at) patched[8*i+:16] = {out_l4_sum[7:0], out_l4_sum[15:8]};
    end
    for (int i = 0; i < B; i++)
      header[i] = out_payload[15:LOG_B] > out_beat
                  || (out_payload[15:LOG_B] == out_beat && out_payload[LOG_B-1:0] > LOG_B'(i));
  end

  assign whole_frame = !verdict_changes && !verdict_drops;
  assign head_ends = !header[B-1] || (out_payload[15:LOG_B] == out_beat + 1'b1 && out_payload[LOG_B-1:0] == '0);
  always_comb begin
    piece = raw_data;
    piece_bytes = raw_bytes;
    piece_last = raw_last;
    piece_valid = 1'b0;
    raw_ready = 1'b0;
    coded_ready = 1'b0;
    case (out)
      HEADERS:
      if (whole_frame) begin
        piece_valid = verdict_valid && raw_valid;
        raw_ready = verdict_valid && piece_ready;
      end else if (verdict_changes) begin
        for (int i = 0; i < B; i++) piece[8*i+:8] = header[i] ? patched[8*i+:8] : 8'b0;
        piece_bytes = header[B-1] ? LEN_W'(B) : {1'b0, out_payload[LOG_B-1:0]};
        piece_last = 1'b0;
        piece_valid = verdict_valid && raw_valid;
        raw_ready = verdict_valid && piece_ready;
      end
      SHIMS: begin
        piece = '0;
        for (int i = 0; i < SHIM; i++) piece[8*i+:8] = out_shim[8*(SHIM-1-i)+:8];
        piece_bytes = LEN_W'(SHIM);
        piece_last = 1'b0;
        piece_valid = 1'b1;
        raw_ready = !raw_ended;
      end
      CODED: begin
        piece = coded_data;
        piece_bytes = coded_bytes;
        piece_last = coded_last;
        piece_valid = coded_valid;
        coded_ready = piece_ready;
        raw_ready = !raw_ended;
      end
      default: raw_ready = !raw_ended;
    endcase
  end

  always_ff @(posedge clk) begin
    if (raw_valid && raw_ready && raw_last) raw_ended <= 1'b1;
    case (out)
      HEADERS: begin
        if (verdict_valid && raw_valid && raw_ready) begin
          out_beat <= out_beat + 1'b1;
          if (verdict_changes && head_ends) out <= HAS_SHIM ? SHIMS : CODED;
          if (whole_frame && raw_last) begin
            out_beat <= '0;
            raw_ended <= 1'b0;
          end
        end
        if (verdict_valid && verdict_drops) out <= SKIPS;
      end
      SHIMS: if (piece_ready) out <= CODED;
      CODED: if (coded_valid && piece_ready && coded_last) out <= SKIPS;
      default:
      if (raw_ended) begin
        out <= HEADERS;
        out_beat <= '0;
        raw_ended <= 1'b0;
      end
    endcase
    if (rst) begin
      out <= HEADERS;
      out_beat <= '0;
      raw_ended <= 1'b0;
    end
  end
  assign verdict_ready = (out == HEADERS) ? whole_frame && raw_valid && raw_ready && raw_last
                                          : out == SKIPS && raw_ended;

  logic [W-1:0] beat;
  logic [B-1:0] beat_keep;
  logic beat_last, beat_valid, beat_ready;
  logic [16:0] beat_info;
  align #(
      .W(W)
  ) frame_to_beats (
      .clk(clk),
      .rst(rst),
      .in_data({{(8 * ((W > 256) ? W / 128 : 2)) {1'b0}}, piece}),
      .in_bytes(piece_bytes),
      .in_last(piece_last),
      .in_info(17'b0),
      .in_valid(piece_valid),
      .in_ready(piece_ready),
      .out_data(beat),
      .out_keep(beat_keep),
      .out_last(beat_last),
      .out_info(beat_info),
      .out_valid(beat_valid),
      .out_ready(beat_ready)
  );
  wire logic unused_info = &{1'b0, beat_info};
  axis_skid #(
      .N(W + B + 1)
  ) out_skid (
      .clk(clk),
      .rst(rst),
      .s_data({beat_last, beat_keep, beat}),
      .s_valid(beat_valid),
      .s_ready(beat_ready),
      .m_data({m_axis_tlast, m_axis_tkeep, m_axis_tdata}),
      .m_valid(m_axis_tvalid),
      .m_ready(m_axis_tready)
  );
endmodule

`default_nettype wire
