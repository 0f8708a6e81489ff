// A mixer that nothing in src/ knows: its options, its class and a row of the table are all that it takes.

#include "attention/mixer.h"
#include "attention/mixers.h"
#include "bench/attention_bench.h"
#include "config/writer.h"
#include "infer/sampling.h"
#include "model/make_model.h"
#include "support/failure.h"
#include "support/workplace.h"

namespace metaformer {

namespace {

// y_c = x_c + a x_{c-1}, with a learned scalar a.
struct ShiftOptions {
  static constexpr std::string_view kind = "shift";
  static constexpr std::string_view summary = "the token plus a learned multiple of the one before";
  double start = 0.5;

  std::optional<MixerProblem> problem(const MixerShape& shape) const {
    if (shape.heads > 4) return MixerProblem{{"model.mixer.kind", "model.heads"}, "'shift' has no use for many heads"};
    return std::nullopt;
  }
  MixerCost cost(const MixerShape& shape, const MixerLoad& load) const {
    const auto width = static_cast<double>(shape.width);
    return {.parameters = 1, .operations = 2 * load.tokens * width, .activations = 2 * shape.width};
  }
};

template <class Visitor>
void visit(Visitor& field, ShiftOptions& o) {
  field("start", o.start, between(-1, 1), "where the multiple starts");
}

class Shift : public Mixer {
 public:
  explicit Shift(const ShiftOptions& options)
      : options_(options), factor_(add_parameter("factor", torch::ones(1), {.init = Init::ones()})) {}

  torch::Tensor mix(const torch::Tensor& x_bcd, const torch::Tensor&, const Visibility& visibility, MixerState* state,
                    Pass&) override {
    const auto seen_bed = state != nullptr ? state->extend(0, x_bcd) : x_bcd;
    const auto earlier_bed = torch::constant_pad_nd(seen_bed, {0, 0, 1, -1});
    auto y_bcd = x_bcd + factor_ * earlier_bed.narrow(1, seen_bed.size(1) - x_bcd.size(1), x_bcd.size(1));
    if (!visibility.has_segments()) return y_bcd;
    const auto& segment_bc = visibility.query_segment_bc;
    const auto follows_bc = segment_bc == torch::constant_pad_nd(segment_bc, {1, -1}, -2);
    y_bcd = torch::where(follows_bc.unsqueeze(2), y_bcd, x_bcd);
    return y_bcd * (segment_bc >= 0).unsqueeze(2);
  }

  void scale_initial_scores(double) override { factor_.mul_(options_.start); }

 private:
  ShiftOptions options_;
  torch::Tensor factor_;
};

std::shared_ptr<Mixer> make(const ShiftOptions& options, const MixerShape&) { return std::make_shared<Shift>(options); }

std::vector<std::string> with_shift(std::vector<std::string> more = {}) {
  register_mixer(mixer_row<ShiftOptions>());
  more.insert(more.begin(), "model.mixer.kind=shift");
  return more;
}

}  // namespace

TEST_CASE("a mixer of one's own trains, and its parameter learns", "[own_mixer]") {
  const Workplace place;
  const auto summary =
      place.train("run", with_shift({"train.steps=60", "train.eval_interval=30", "train.learning_rate=0.01"}));
  CHECK(summary["val_loss"].get<double>() < 2);
  CHECK(summary["mixer_parameters"] == 2);  // of two blocks
  const auto run = load_run(place / "run", "last", "cpu");
  const auto factor = run.model->named_parameters()["transformer.blocks.0.mixer.factor"];
  CHECK(factor.item<float>() != 0.5F);
}

TEST_CASE("a mixer of one's own resumes to the byte, with dropout", "[own_mixer]") {
  const Workplace place;
  const auto with = [](const std::string& steps) {
    return with_shift(
        {"model.dropout=0.2", "train.schedule={kind: constant, warmup_steps: 2}", "train.steps=" + steps});
  };
  place.train("whole", with("12"));
  place.train("cut", with("5"));
  place.train("cut", with("12"), true);
  CHECK(model_bytes(place / "whole") == model_bytes(place / "cut"));
}

TEST_CASE("a mixer of one's own samples without a decoder, with its cache as without", "[own_mixer]") {
  const Workplace place;
  place.train("run", with_shift());
  const auto run = load_run(place / "run", "last", "cpu");
  CHECK(run.model->decoder(1) == nullptr);
  const auto sample = [&](bool cached) {
    TextGenerator generator(*run.model, {1, 2, 3}, {.temperature = 1, .cached = cached}, torch::kCPU);
    std::vector<std::int32_t> tokens;
    for (int i = 0; i < 30; ++i) tokens.push_back(generator.next().at(0));
    return tokens;
  };
  CHECK(sample(true) == sample(false));
}

TEST_CASE("the state of a mixer of one's own is saved and loaded", "[own_mixer]") {
  const Workplace place;
  Parts parts(place.experiment(with_shift()));
  const torch::NoGradGuard no_grad;
  const auto state = parts.model->new_state(1, 16), loaded = parts.model->new_state(1, 16);
  parts.model->evaluate({.ids_bc = torch::tensor({{1, 2, 3}})}, state.get());
  loaded->load(state->tensors(), "a file");
  const Batch next{.ids_bc = torch::tensor({{4, 5}})};
  CHECK(torch::equal(parts.model->evaluate(next, loaded.get()), parts.model->evaluate(next, state.get())));
}

TEST_CASE("a mixer of one's own is benchmarked, with the operations and memory that it says", "[own_mixer]") {
  with_shift();
  const AttentionShape shape{.batch = 2, .heads = 2, .context = 16, .head_width = 4};
  CHECK(forward_operations(ShiftOptions{}, shape, true) == 2.0 * 2 * 16 * 8);
  const auto results =
      bench_attention({.shapes = {shape}, .mixers = {ShiftOptions{}}, .rounds = 1}, [](const std::string&) {});
  REQUIRE(results.size() == 1);
  CHECK(results[0].mixer == "shift");
  CHECK(results[0].ms > 0);
  CHECK(results[0].teraflops > 0);
  REQUIRE(results[0].error);
  CHECK(*results[0].error < 1e-6);
  const Workplace place;
  const Parts parts(place.experiment(with_shift()));
  const auto& codec = parts.task.data->codec();
  CHECK(count_parameters(parts.experiment.config, {.vocabulary = codec.tokenizer->vocabulary_size()}) ==
        count_parameters(*parts.model).all);
}

TEST_CASE("a mixer of one's own is described and written like any other", "[own_mixer]") {
  const auto experiment = default_experiment(with_shift({"model.mixer.start=0.25"}));
  CHECK(config_to_json(experiment.config)["model"]["mixer"].dump() == R"({"kind":"shift","start":0.25})");
  CHECK_THAT(config_to_yaml(experiment.config), ContainsSubstring("mixer:\n    kind: shift\n    start: 0.25\n"));
  const auto fields = explain_config();
  const auto find = [&](const std::string& path, const std::string& applies) {
    return std::find_if(fields.begin(), fields.end(),
                        [&](const auto& field) { return field.path == path && applies_to(field) == applies; });
  };
  const auto start = find("model.mixer.start", "model: transformer or encoder_decoder, model.mixer: shift");
  REQUIRE(start != fields.end());
  CHECK(start->expected == "number, at least -1 and at most 1");
  CHECK(start->fallback == "0.5");
  const auto mixer = find("model.mixer", "model: transformer or encoder_decoder");
  REQUIRE(mixer != fields.end());
  CHECK_THAT(mixer->expected, ContainsSubstring("shift"));
  CHECK(mixer->kinds.back().name == "shift");
  CHECK(mixer->kinds.back().summary == ShiftOptions::summary);
}

TEST_CASE("wrong options of a mixer of one's own are refused by name", "[own_mixer]") {
  const auto complaint = [](std::vector<std::string> overrides) {
    const auto [code, message] = failure([&] { default_experiment(overrides); });
    CHECK(code == ExitCode::usage);
    return message;
  };
  CHECK_THAT(complaint(with_shift({"model.mixer.start=7"})),
             ContainsSubstring("model.mixer.start: 7 is out of range; must be at least -1 and at most 1"));
  CHECK_THAT(complaint(with_shift({"model.mixer.start=much"})), ContainsSubstring("expected a number, got 'much'"));
  CHECK_THAT(complaint(with_shift({"model.mixer.stat=1"})),
             ContainsSubstring("model.mixer.stat: unknown key; did you mean 'model.mixer.start'?"));
  CHECK_THAT(complaint({"model.mixer.kind=shfit"}), ContainsSubstring("did you mean 'shift'?"));
  CHECK_THAT(complaint(with_shift({"model.heads=8"})), ContainsSubstring("'shift' has no use for many heads"));
}

}  // namespace metaformer
