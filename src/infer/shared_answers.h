#pragma once
// Answers to texts that several processes take turns in.

#include <functional>
#include <nlohmann/json.hpp>
#include <vector>

#include "distributed/process_group.h"

namespace metaformer {

// Texts of one forward pass, as token ids.
using TextBatch = std::vector<std::vector<std::int32_t>>;

// What a process says of each text of a batch.
using Answers = std::vector<nlohmann::ordered_json>;
using AnswerBatch = std::function<Answers(const TextBatch&)>;

// On the first process: the answers to at most as many batches as there are processes, which only this one has read.
// The others must be in help_answer.
std::vector<Answers> answer_together(ProcessGroup& group, const AnswerBatch& answer,
                                     const std::vector<TextBatch>& batches);

// On the others: answers their share until the first calls end_answers.
void help_answer(ProcessGroup& group, const AnswerBatch& answer);
void end_answers(ProcessGroup& group);

}  // namespace metaformer
