// SPDX-License-Identifier: Apache-2.0
// Sends a question from one clock domain to another and its answer back, one at a time. Toggle lines signal a new
// question and a new answer; the data are stable from before the toggle until the other side has taken them. Both
// resets are held together, for some cycles of the slower clock. A timing constraint is needed: each path between the
// clocks must be shorter than a cycle of either of them.
`default_nettype none

module ask_cross #(
    parameter int ASK = 32,
    parameter int ANSWER = 32
) (
    input wire logic s_clk,
    input wire logic s_rst,
    input wire logic [ASK-1:0] s_ask,
    input wire logic s_ask_valid,
    output logic s_ask_ready,
    output logic [ANSWER-1:0] s_answer,
    output logic s_answer_valid,
    input wire logic s_answer_ready,
    input wire logic m_clk,
    input wire logic m_rst,
    output logic [ASK-1:0] m_ask,
    output logic m_ask_valid,
    input wire logic m_ask_ready,
    input wire logic [ANSWER-1:0] m_answer,
    input wire logic m_answer_valid,
    output logic m_answer_ready
);
  logic sent, answered, sent1, sent2, answered1, answered2;
  logic [ASK-1:0] ask;
  logic [ANSWER-1:0] answer;

  // The side that asks.
  logic waits;
  assign s_ask_ready = !waits && !s_answer_valid;
  always_ff @(posedge s_clk) begin
    {answered2, answered1} <= {answered1, answered};
    if (s_answer_ready) s_answer_valid <= 1'b0;
    if (s_ask_valid && s_ask_ready) begin
      ask <= s_ask;
      sent <= !sent;
      waits <= 1'b1;
    end else if (waits && answered2 == sent) begin
      s_answer <= answer;
      s_answer_valid <= 1'b1;
      waits <= 1'b0;
    end
    if (s_rst) begin
      {sent, answered1, answered2, waits, s_answer_valid} <= 5'b0;
    end
  end

  // The side that answers.
  logic has_question;
  assign m_answer_ready = has_question && !m_ask_valid;
  always_ff @(posedge m_clk) begin
    {sent2, sent1} <= {sent1, sent};
    if (m_ask_ready) m_ask_valid <= 1'b0;
    if (!has_question && sent2 != answered) begin
      m_ask <= ask;
      m_ask_valid <= 1'b1;
      has_question <= 1'b1;
    end
    if (m_answer_ready && m_answer_valid) begin
      answer <= m_answer;
      answered <= sent2;
      has_question <= 1'b0;
    end
    if (m_rst) begin
      {answered, sent1, sent2, has_question, m_ask_valid} <= 5'b0;
    end
  end
endmodule

`default_nettype wire
