// SPDX-License-Identifier: Apache-2.0
// The alignment unit: pieces of 0 to W/8 + 2 (at 512 bits: + 4) bytes to full beats without a gap. A beat leaves when
// a byte behind it is known or the packet ends; so the last one can carry tlast whatever the last piece adds. A piece
// that fills two beats, or ends a packet in a second one, holds up those behind it for one cycle, and for two where
// it does both. Latency 3.
`default_nettype none

module align #(
    parameter int W = 256,
    localparam int B = W / 8,
    localparam int MORE = (W > 256) ? W / 128 : 2,  // bytes by which a piece can exceed a beat
    localparam int PIECE_W = W + 8 * MORE,
    localparam int AT_W = $clog2(B) + 1,
    localparam int TOTAL_W = 2 * W + 8 * MORE,
    localparam int INFO_W = 17
) (
    input wire logic clk,
    input wire logic rst,
    input wire logic [PIECE_W-1:0] in_data,  // 0 from in_bytes on
    input wire logic [AT_W-1:0] in_bytes,
    input wire logic in_last,
    input wire logic [INFO_W-1:0] in_info,
    input wire logic in_valid,
    output logic in_ready,
    output logic [W-1:0] out_data,
    output logic [B-1:0] out_keep,
    output logic out_last,
    output logic [INFO_W-1:0] out_info,  // 0 but on the last beat
    output logic out_valid,  // no path from out_ready
    input wire logic out_ready
);
  localparam logic [AT_W:0] FULL = B[AT_W:0];

  function automatic logic [B-1:0] keep_of(input logic [AT_W-1:0] bytes);
    for (int i = 0; i < B; i++) keep_of[i] = i[AT_W-1:0] < bytes;
  endfunction

  logic en;
  assign in_ready = en;

  // Where each piece goes: 0 at a packet's begin, else behind the 1 to B bytes of the beat that is being filled.
  logic [AT_W-1:0] at;
  logic [AT_W:0] end_of_piece;
  logic [AT_W-1:0] behind;
  always_comb begin
    end_of_piece = {1'b0, at} + {1'b0, in_bytes};
    behind = end_of_piece[AT_W-1:0];
    if (end_of_piece > FULL && end_of_piece <= 2 * FULL) behind = end_of_piece[AT_W-1:0] - FULL[AT_W-1:0];
  end

  // Two steps of shifting.
  localparam int LOW = 3;
  logic valid1, valid2, last1, last2;
  logic [INFO_W-1:0] info1, info2;
  logic [AT_W:0] end1, end2;
  logic [AT_W-LOW-1:0] at1;
  logic [PIECE_W+8*7-1:0] data1;
  logic [TOTAL_W-1:0] data2;

  always_ff @(posedge clk) begin
    if (en) begin
      valid1 <= in_valid;
      last1 <= in_last;
      info1 <= in_info;
      end1 <= end_of_piece;
      at1 <= at[AT_W-1:LOW];
      data1 <= {56'b0, in_data} << {at[LOW-1:0], 3'b0};
      if (in_valid) at <= in_last ? '0 : behind;

      valid2 <= valid1;
      last2 <= last1;
      info2 <= info1;
      end2 <= end1;
      data2 <= TOTAL_W'(data1) << {at1, 6'b0};
    end
    if (rst) begin
      valid1 <= 1'b0;
      valid2 <= 1'b0;
      at <= '0;
    end
  end

  // Joined with what is there already.
  logic more;  // beats to emit before the next piece
  logic [W-1:0] store;
  logic [8*MORE-1:0] store_more;
  logic [AT_W:0] left;  // bytes of them
  logic ends;
  logic [INFO_W-1:0] store_info;
  logic [TOTAL_W-1:0] joined;
  logic takes;

  assign joined = data2 | TOTAL_W'(store);
  assign en = !more && (out_ready || !out_valid);
  assign takes = en && valid2;

  always_ff @(posedge clk) begin
    if (out_ready) out_valid <= 1'b0;
    if (takes) begin
      out_data <= joined[W-1:0];
      out_keep <= '1;
      out_last <= 1'b0;
      out_info <= '0;
      store_info <= info2;
      ends <= last2;
      if (end2 <= FULL) begin
        store <= joined[W-1:0];
        if (last2) begin
          out_valid <= 1'b1;
          out_last <= 1'b1;
          out_info <= info2;
          out_keep <= keep_of(end2[AT_W-1:0]);
          store <= '0;
        end
      end else begin
        out_valid <= 1'b1;
        store <= joined[2*W-1:W];
        store_more <= joined[TOTAL_W-1:2*W];
        left <= end2 - FULL;
        if (last2 || end2 > 2 * FULL) more <= 1'b1;
      end
    end
    if (more && (out_ready || !out_valid)) begin
      out_valid <= 1'b1;
      out_data <= store;
      left <= left - FULL;
      store <= W'(store_more);
      store_more <= '0;
      if (left <= FULL) begin  // so the packet ends
        out_keep <= keep_of(left[AT_W-1:0]);
        out_last <= 1'b1;
        out_info <= store_info;
        store <= '0;
        more <= 1'b0;
      end else begin
        more <= ends;
      end
    end
    if (rst) begin
      more <= 1'b0;
      store <= '0;
      out_valid <= 1'b0;
    end
  end
endmodule

`default_nettype wire
