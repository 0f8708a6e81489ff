// What a model carries from step to step, saved and taken up.

#include "support/failure.h"
#include "support/together.h"
#include "support/workplace.h"
#include "train/step.h"

namespace metaformer {

namespace {

const std::vector<std::string> carrying = {"model={kind: lstm, width: 16, layers: 2, carry_state: true}"};

// As if the passes of a step, of 6 rows each, had been computed: row r of the step holds r.
void fill(const StepMemory& memory, int passes, int first_pass = 0) {
  for (int pass = 0; pass < passes; ++pass) {
    const auto rows = torch::arange(6, torch::kFloat) + 6 * (first_pass + pass);
    const auto state_lbd = rows.view({1, 6, 1}).expand({2, 6, 16}).contiguous();
    memory.of_pass(pass)->load({{"length", torch::tensor(32)}, {"hidden", state_lbd}, {"cell", -state_lbd}}, "a test");
  }
}

std::map<std::string, torch::Tensor> tensors_of(const StepMemory& memory) {
  const auto tensors = memory.tensors();
  return {tensors.begin(), tensors.end()};
}

}  // namespace

TEST_CASE("memory is saved by rows, and taken up by passes and processes of other sizes", "[memory]") {
  const Workplace place;
  Parts parts(place.experiment(carrying));
  const StepMemory whole(*parts.model, 4, 1, one_process());
  fill(whole, 4);
  const auto saved = whole.tensors();
  CHECK(torch::equal(tensors_of(whole).at("memory.hidden").select(0, 1).select(1, 3),
                     torch::arange(24).to(torch::kFloat)));
  StepMemory other(*parts.model, 2, 3, one_process());
  auto again = saved;
  other.take(again, 24, "a test");
  CHECK(again.empty());
  CHECK(torch::equal(tensors_of(other).at("memory.cell"), tensors_of(whole).at("memory.cell")));
  CHECK(other.of_pass(4)->tensors()[1].second.size(1) == 4);
  together(2, [&](ProcessGroup& group) {
    StepMemory half(*parts.model, 2, 1, group);
    auto all = saved;
    half.take(all, 24, "a test");
    CHECK(half.of_pass(0)->tensors()[1].second[0][0][0].item<int>() == 12 * group.rank());
    CHECK(torch::equal(tensors_of(half).at("memory.hidden"), tensors_of(whole).at("memory.hidden")));
  });
}

TEST_CASE("memory of other shapes than the model's is refused by name", "[memory]") {
  const Workplace place;
  Parts parts(place.experiment(carrying));
  const StepMemory memory(*parts.model, 2, 1, one_process());
  fill(memory, 2);
  const auto complaint = [&](const std::string& name, const torch::Tensor& tensor) {
    auto saved = memory.tensors();
    for (auto& entry : saved)
      if (entry.first == name) entry.second = tensor;
    StepMemory other(*parts.model, 2, 1, one_process());
    const auto [code, message] = failure([&] { other.take(saved, 12, "state.safetensors"); });
    CHECK(code == ExitCode::usage);
    CHECK_THAT(message, ContainsSubstring("state.safetensors: memory: cannot go on from it: "));
    return message;
  };
  CHECK_THAT(complaint("memory.hidden", torch::zeros({2, 12})),
             ContainsSubstring("'hidden' has shape [2, 12], and this model expects [2, any, 16]"));
  CHECK_THAT(complaint("memory.hidden", torch::zeros({2, 12, 8})), ContainsSubstring("has shape [2, 12, 8]"));
  CHECK_THAT(complaint("memory.cell", torch::zeros({2, 11, 16})), ContainsSubstring("expects [2, 12, 16]"));
  CHECK_THAT(complaint("memory.length", torch::tensor(std::int64_t{9'000'000'000'000'000'000})),
             ContainsSubstring("'length' is 9e+18"));
  NamedTensors fewer = {{"memory.length", torch::tensor(32)},
                        {"memory.hidden", torch::zeros({2, 10, 16})},
                        {"memory.cell", torch::zeros({2, 10, 16})}};
  StepMemory other(*parts.model, 2, 1, one_process());
  CHECK_THAT(failure([&] { other.take(fewer, 12, "a test"); }).second,
             ContainsSubstring("'hidden' has shape [2, 10, 16], and this model expects [2, 12, 16]"));
  NamedTensors unnamed = {{"memory.", torch::zeros({2, 6, 16})}};
  CHECK(failure([&] { other.take(unnamed, 12, "a test"); }).first == ExitCode::usage);
}

TEST_CASE("a model without memory has none to save", "[memory]") {
  const Workplace place;
  Parts parts(place.experiment({}));
  StepMemory none(*parts.model, 2, 1, one_process());
  CHECK(none.tensors().empty());
  CHECK(none.of_pass(1) == nullptr);
}

}  // namespace metaformer
