#include "infer/shared_answers.h"

namespace metaformer {

using Json = nlohmann::ordered_json;

std::vector<Answers> answer_together(ProcessGroup& group, const AnswerBatch& answer,
                                     const std::vector<TextBatch>& batches) {
  if (group.size() == 1) return {answer(batches.front())};
  group.gather(Json(batches).dump());
  std::vector<Answers> answers = {answer(batches.front())};
  const auto of_ranks = group.gather("");
  for (std::size_t rank = 1; rank < batches.size(); ++rank) answers.push_back(Json::parse(of_ranks[rank]));
  return answers;
}

void help_answer(ProcessGroup& group, const AnswerBatch& answer) {
  const auto own = static_cast<std::size_t>(group.rank());
  while (true) {
    const auto message = group.gather("").front();
    if (message.empty()) return;
    const auto batches = Json::parse(message).get<std::vector<TextBatch>>();
    group.gather(own < batches.size() ? Json(answer(batches[own])).dump() : "");
  }
}

void end_answers(ProcessGroup& group) {
  if (group.size() > 1) group.gather("");
}

}  // namespace metaformer
