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
  const auto check = [&](const NamedTensors& changes, const std::string& text) {
    auto saved = memory.tensors();
    for (auto& [name, tensor] : saved)
      for (const auto& [changed, value] : changes)
        if (name == changed) tensor = value;
    StepMemory other(*parts.model, 2, 1, one_process());
    CHECK_THAT(message_of(ExitCode::usage, [&] { other.take(saved, 12, "state.safetensors"); }),
               ContainsSubstring("state.safetensors: memory: ") && ContainsSubstring(text));
  };
  check({{"memory.hidden", torch::zeros({2, 12})}}, "'hidden' has shape [2, 12], and this model expects [2, any, 16]");
  check({{"memory.hidden", torch::zeros({2, 12, 8})}}, "has shape [2, 12, 8]");
  check({{"memory.cell", torch::zeros({2, 11, 16})}}, "expects [2, 12, 16]");
  check({{"memory.length", torch::tensor(std::int64_t{9'000'000'000'000'000'000})}}, "'length' is 9e+18");
  check({{"memory.hidden", torch::zeros({2, 10, 16})}, {"memory.cell", torch::zeros({2, 10, 16})}},
        "'hidden' has shape [2, 10, 16], and this model expects [2, 12, 16]");
  NamedTensors unnamed = {{"memory.", torch::zeros({2, 6, 16})}};
  StepMemory other(*parts.model, 2, 1, one_process());
  CHECK(failure([&] { other.take(unnamed, 12, "a test"); }).first == ExitCode::usage);
  Parts plain(place.experiment({}));
  const StepMemory none(*plain.model, 2, 1, one_process());  // a model without memory has none to save
  CHECK(none.tensors().empty());
  CHECK(none.of_pass(1) == nullptr);
}

}  // namespace metaformer
