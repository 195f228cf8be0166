// SPDX-License-Identifier: Apache-2.0
// The shifter tree the other way round: bytes without holes to LANES lanes. Each level gives its left half to the left
// and what stands behind the left half's bytes to the right. What follows a lane's own bytes is not cleared.
// Latency log2(LANES).
`default_nettype none

module split_tree #(
    parameter int LANES = 8,
    localparam int LEVELS = $clog2(LANES)
) (
    input wire logic clk,
    input wire logic en,
    input wire logic [32*LANES-1:0] data,
    input wire logic [3*LANES-1:0] lane_bytes,  // 0..4 each
    output logic [32*LANES-1:0] lane_data
);
  // Level l has 2^l nodes of LANES >> l lanes; lengths travel along, those of the lanes to the last level.
  for (genvar l = 0; l < LEVELS; l++) begin : level
    localparam int NODES = 1 << l;
    localparam int PART = LANES >> (l + 1);  // lanes of half a node
    logic [32*LANES-1:0] in_data, out_data;
    logic [3*LANES-1:0] in_bytes;

    if (l == 0) begin : first
      assign in_data = data;
      assign in_bytes = lane_bytes;
    end else begin : other
      assign in_data = level[l-1].out_data;
      assign in_bytes = level[l-1].keep.out_bytes;
    end

    for (genvar n = 0; n < NODES; n++) begin : node
      logic [64*PART-1:0] node_data;
      logic [5:0] left_bytes;
      assign node_data = in_data[64*PART*n+:64*PART];
      always_comb begin
        left_bytes = 6'd0;
        for (int i = 0; i < PART; i++) left_bytes = left_bytes + {3'b0, in_bytes[3*(2*PART*n+i)+:3]};
      end
      always_ff @(posedge clk) begin
        if (en) begin
          out_data[64*PART*n+:32*PART] <= node_data[32*PART-1:0];
          out_data[64*PART*n+32*PART+:32*PART] <= (32 * PART)'(node_data >> {left_bytes, 3'b0});
        end
      end
    end
    if (l + 1 < LEVELS) begin : keep
      logic [3*LANES-1:0] out_bytes;
      always_ff @(posedge clk) if (en) out_bytes <= in_bytes;
    end
  end

  assign lane_data = level[LEVELS-1].out_data;
endmodule

`default_nettype wire
