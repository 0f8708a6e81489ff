// train.lora: adapters of initial weights. Their gradients, all optimisers, checkpoints, resumed runs, and errors.

#include <ATen/CPUGeneratorImpl.h>

#include <map>

#include "run/checkpoint_surgery.h"
#include "support/failure.h"
#include "tasks/task_examples.h"

namespace metaformer::test_lora {

namespace {

using Tensors = std::map<std::string, torch::Tensor>;

// The options of adapters of the weights at `source`.
Overrides adapters_of(const std::string& source, const Overrides& more = {}) {
  return joined({"train.init_from='" + source + "'", "train.lora.rank=3", "train.lora.alpha=6",
                 "train.lora.targets=[mixer, feed_forward.up]"},
                more);
}

// Trains a run `source`, if there is none, and returns the options of a run that adapts it.
Overrides adapts(const Workplace& place, const Overrides& of_model = {}, const Overrides& more = {}) {
  if (!std::filesystem::exists(place / "source"))
    place.train("source", joined(of_model, {"train.steps=3", "train.learning_rate=0.01"}));
  return joined(of_model, adapters_of((place / "source").string(), more));
}

Checkpoint checkpoint_of(const std::filesystem::path& run, const std::string& name = "last") {
  return load_checkpoint(RunDirectory::open(run), name, WithOptimizer::yes);
}

Tensors by_name(const NamedTensors& tensors) { return {tensors.begin(), tensors.end()}; }

bool is_factor(const std::string& name) { return name.ends_with(".lora_A") || name.ends_with(".lora_B"); }

bool is_target(const std::string& name) {
  return name.find(".blocks.") != std::string::npos && name.ends_with(".weight") &&
         (name.find(".mixer.") != std::string::npos || name.find(".up.") != std::string::npos);
}

// The factor of a target: "A" or "B".
std::string factor_of(const std::string& target, const std::string& which) {
  return target.substr(0, target.rfind('.')) + ".lora_" + which;
}

// A step with adapters that are not zero.
struct Adapted : Parts {
  explicit Adapted(const Experiment& given) : Parts(given) {
    lora->take_base();
    const torch::NoGradGuard no_grad;
    auto generator = at::make_generator<at::CPUGeneratorImpl>(3);
    for (const auto& view : parameters->views())
      if (view.name.ends_with(".lora_B")) torch::Tensor(view.parameter).normal_(0, 0.1, generator);
    lora->merge();
  }

  Tensors values() const {
    Tensors values;
    for (const auto& view : parameters->views()) values[view.name] = view.parameter.detach().clone();
    return values;
  }

  Tensors gradients() const {
    Tensors gradients;
    for (const auto& view : parameters->views())
      gradients[view.name] = ParameterBuffer::part(parameters->gradients(), view).clone();
    return gradients;
  }
};

void check_close(const torch::Tensor& given, const torch::Tensor& expected, double relative) {
  CHECK((given - expected).abs().max().item<double>() <= relative * expected.abs().max().item<double>());
}

}  // namespace

TEST_CASE("an adapted run begins with exactly the function of its initial weights", "[lora]") {
  const Workplace place;
  place.train("adapted", adapts(place, {}, {"train.learning_rate=1e-30", "train.schedule.floor=0", "train.steps=1"}));
  const auto source = by_name(checkpoint_of(place / "source", "best").model);
  const auto adapted = by_name(checkpoint_of(place / "adapted").model);
  CHECK(adapted.size() == source.size());
  for (const auto& [name, tensor] : source) CHECK(torch::equal(adapted.at(name), tensor));
}

TEST_CASE("A is drawn as peft draws it, and B is zero", "[lora]") {
  const Workplace place;
  const Parts parts(place.experiment(adapters_of("nowhere")));
  std::size_t factors = 0, targets = 0;
  for (const auto& view : parts.parameters->views()) {
    INFO(view.name);
    targets += is_target(view.name) ? 1 : 0;
    factors += is_factor(view.name) ? 1 : 0;
    const double largest = view.parameter.abs().max().item<double>();
    if (view.name.ends_with("lora_B")) CHECK(largest == 0);
    if (!view.name.ends_with("lora_A")) continue;
    CHECK(view.parameter.size(0) == 3);
    const double bound = 1 / std::sqrt(static_cast<double>(view.parameter.size(1)));
    CHECK(largest <= bound);
    CHECK(largest > 0.8 * bound);
  }
  CHECK(targets == 6);  // three in each of two blocks
  CHECK(factors == 2 * targets);
}

TEST_CASE("gradients of the factors follow from those of the whole weights", "[lora]") {
  const auto [name, options] = GENERATE(table<std::string, Overrides>(
      {{"plain", {}},
       {"slices and batches", {"train.cpu_slices=2", "train.accumulate=2"}},
       {"chunks", {"train.loss_chunks=3", "model.feed_forward.chunks=2"}},
       {"reversible", {"model.blocks=reversible"}},
       {"metric", {"model.mixer=metric", "model.bias=true"}},
       {"gated", {"model.feed_forward=gated", "model.positions=rotary", "model.norm=rms_norm"}},
       {"several mixers", {"model.mixer=[mamba2, lsh]"}}}));
  CAPTURE(name);
  const Workplace place;
  Adapted adapted(place.experiment(adapters_of("nowhere", options)));
  Parts whole(place.experiment(options));
  copy_by_name(named_state(*adapted.model), named_state(*whole.model), "the adapted model");
  const auto loss = adapted.compute_gradients(3), expected = whole.compute_gradients(3);
  CHECK(loss.item<double>() == expected.item<double>());
  const auto values = adapted.values(), gradients = adapted.gradients();
  constexpr double scale = 6.0 / 3, rounding = 1e-5;
  std::size_t targets = 0;
  for (const auto& view : whole.parameters->views()) {
    INFO(view.name);
    const auto gradient_oi = ParameterBuffer::part(whole.parameters->gradients(), view).to(torch::kDouble);
    CHECK(gradients.at(view.name).abs().max().item<double>() == 0);  // W and all that have no adapter are fixed
    if (!view.name.ends_with(".weight") || !gradients.contains(factor_of(view.name, "A"))) continue;
    ++targets;
    const auto a_ri = values.at(factor_of(view.name, "A")).to(torch::kDouble),
               b_or = values.at(factor_of(view.name, "B")).to(torch::kDouble);
    const auto matrix_oi = gradient_oi.view({-1, gradient_oi.size(-1)});
    check_close(gradients.at(factor_of(view.name, "A")), scale * torch::mm(b_or.t(), matrix_oi), rounding);
    check_close(gradients.at(factor_of(view.name, "B")), scale * torch::mm(matrix_oi, a_ri.t()), rounding);
  }
  CHECK(targets >= 4);
}

TEST_CASE("every optimiser changes the adapters and what is named in full, and has no state of the rest", "[lora]") {
  const auto optimiser =
      GENERATE("adamw", "adam", "sgd", "{kind: sgd, momentum: 0.9}", "adagrad", "muon", "{kind: adamw, betas: [0, 0]}");
  const auto options = GENERATE(values<Overrides>({{"train.cpu_slices=1"},
                                                   {"train.cpu_slices=2", "train.precision=bf16"},
                                                   {"train.precision=fp16", "train.weight_average.decay=0.5"}}));
  CAPTURE(optimiser, options.front());
  const Workplace place;
  Parts parts(place.experiment(adapters_of(
      "nowhere", joined(options, {std::string("train.optimizer=") + optimiser, "train.optimizer.weight_decay=0.1",
                                  "train.lora.full=[transformer.final_norm]"}))));
  parts.start_from_model();
  const auto before = parts.parameters->values().clone();
  for (int step = 0; step < 4; ++step) parts.run(step, 1e-2);
  for (const auto& view : parts.parameters->views()) {
    INFO(view.name);
    const bool is_full = view.name.find("final_norm") != std::string::npos;
    const bool changes = is_full || is_factor(view.name) || is_target(view.name);
    CHECK(torch::equal(view.parameter.detach(), ParameterBuffer::part(before, view)) != changes);
    CHECK((view.rate > 0) == (is_full || is_factor(view.name)));
  }
  for (const auto& [name, tensor] : parts.optimizer->state())
    CHECK((is_factor(name) || name.ends_with("final_norm.weight") || tensor.dim() == 0));
}

TEST_CASE("a checkpoint has the merged weights, and its state the base and the factors", "[lora]") {
  const Workplace place;
  const std::string average = GENERATE("0", "0.9");
  place.train("adapted", adapts(place, {}, {"train.learning_rate=0.01", "train.weight_average.decay=" + average}));
  const auto source = by_name(checkpoint_of(place / "source", "best").model);
  const auto checkpoint = checkpoint_of(place / "adapted");
  const auto merged = by_name(checkpoint.model), state = by_name(checkpoint.optimizer);
  CHECK(merged.size() == source.size());
  for (const auto& [name, tensor] : source) {
    INFO(name);
    CHECK(torch::equal(merged.at(name), tensor) != is_target(name));
    if (!is_target(name)) continue;
    CHECK(torch::equal(state.at("base." + name), tensor));
    const auto product = torch::mm(state.at("adapter." + factor_of(name, "B")).to(torch::kDouble),
                                   state.at("adapter." + factor_of(name, "A")).to(torch::kDouble));
    check_close(merged.at(name), tensor + 2 * product, 1e-6);
  }
  CHECK(adapters_in(checkpoint.optimizer).size() == 12);
  // The run is used like any other one.
  const auto loaded = load_run(place / "adapted", "last", "cpu");
  for (const auto& [name, tensor] : named_state(*loaded.model)) CHECK(torch::equal(tensor, merged.at(name)));
  place.train("next", {"train.init_from='" + (place / "adapted/checkpoints/last").string() + "'",
                       "train.learning_rate=1e-30", "train.schedule.floor=0", "train.steps=1"});
  for (const auto& [name, tensor] : checkpoint_of(place / "next").model) CHECK(torch::equal(tensor, merged.at(name)));
}

TEST_CASE("an adapted run resumes to the byte, also without the source of its weights", "[lora][resume]") {
  const auto [cut, options] = GENERATE(table<std::string, Overrides>(
      {{"1", {"train.optimizer=adamw"}},
       {"5", {"train.optimizer={kind: sgd, momentum: 0.9}", "train.weight_average.decay=0.9"}},
       {"3", {"train.optimizer=muon", "train.precision=bf16", "train.weight_average.decay=0.5"}},
       {"8", {"train.optimizer=adagrad", "train.precision=fp16", "train.accumulate=2"}},
       {"5", {"train.optimizer=adam", "train.cpu_slices=2", "model.dropout=0.2"}},
       {"8", {"train.freeze=[transformer.blocks.0]", "train.rate_factors=[lora_B=16]"}},
       {"3", {"train.lora.full=[transformer.final_norm]", "train.layer_rate_decay=0.7"}}}));
  CAPTURE(cut, options.front());
  const Workplace place;
  const auto common = joined(adapts(place, {}, options),
                             joined(evaluates_and_saves_once, {"train.schedule={kind: constant, warmup_steps: 2}"}));
  const auto train = [&](const std::string& run, const std::string& steps, bool resume) {
    place.train(run, joined(common, {"train.steps=" + steps}), resume);
  };
  train("whole", "12", false);
  train("cut", cut, false);
  std::filesystem::remove_all(place / "source");
  torch::manual_seed(99);
  train("cut", "12", true);
  CHECK((model_bytes(place / "whole") == model_bytes(place / "cut")));
  CHECK((state_bytes(place / "whole") == state_bytes(place / "cut")));
}

TEST_CASE("evaluations between the steps do not change an adapted run", "[lora]") {
  const Workplace place;
  const auto common = adapts(place, {}, {"train.weight_average.decay=0.9", "train.learning_rate=0.01"});
  place.train("often", joined(common, {"train.eval_interval=1"}));
  place.train("once", joined(common, {"train.eval_interval=12"}));
  CHECK((model_bytes(place / "often") == model_bytes(place / "once")));
}

TEST_CASE("a restart restores the initial weights and adapters", "[lora]") {
  const Workplace place;
  Parts parts(place.experiment(adapters_of("nowhere")));
  parts.start_from_model();
  const auto before = parts.parameters->values().clone();
  const auto after = [&] {
    for (int step = 0; step < 3; ++step) parts.run(step, 1e-2);
    return parts.parameters->values().clone();
  };
  const auto first = after();
  parts.restart(before);
  CHECK(torch::equal(parts.parameters->values(), before));
  CHECK(torch::equal(after(), first));
}

TEST_CASE("the adapters of frozen blocks do not change, and factors of the rate have their names", "[lora][rates]") {
  const Workplace place;
  Parts parts(place.experiment(adapts(
      place, {}, {"train.freeze=[transformer.blocks.0]", "train.rate_factors=[lora_B=16, mixer.output.lora_A=2]"})));
  for (const auto& view : parts.parameters->views()) {
    INFO(view.name);
    const bool is_frozen = view.name.find("blocks.0.") != std::string::npos || !is_factor(view.name);
    const double factor = view.name.ends_with("lora_B") ? 16 : view.name.ends_with("mixer.output.lora_A") ? 2 : 1;
    CHECK(view.rate == (is_frozen ? 0 : factor));
  }
  parts.start_from_model();
  const auto before = parts.parameters->values().clone();
  parts.run(0, 1e-2);
  for (const auto& view : parts.parameters->views())
    if (view.name.find("blocks.0.") != std::string::npos)
      CHECK(torch::equal(view.parameter.detach(), ParameterBuffer::part(before, view)));
}

TEST_CASE("recurrent models are adapted, too", "[lora]") {
  const Workplace place;
  const Overrides lstm = {"model={kind: lstm, width: 16}"};
  const auto options = adapts(place, lstm, {"train.lora.targets=[lstm]", "train.layer_rate_decay=0.5"});
  place.train("adapted", joined(options, {"train.learning_rate=0.01"}));
  const auto source = by_name(checkpoint_of(place / "source", "best").model);
  for (const auto& [name, tensor] : checkpoint_of(place / "adapted").model) {
    INFO(name);
    CHECK(torch::equal(tensor, source.at(name)) == (name.find("lstm.weight") == std::string::npos));
  }
}

TEST_CASE("a classifier adapts a language model, and trains its new head in full", "[lora][classification]") {
  const Workplace place;
  const Overrides words = {"data.tokenizer={kind: word, whitespace: kept, min_count: 1}", "model.layers=1"};
  place.train("source", joined(words, {"train.steps=3", "train.learning_rate=0.01"}));
  const auto train = [&](const Overrides& more) {
    const Overrides lora = {"train.init_from='" + (place / "source").string() + "'", "train.lora.rank=2",
                            "task.baselines=false"};
    place.train("classifier", classifier(place, joined(joined(lora, {"train.steps=3"}), more)));
  };
  const auto mean = std::string("task.head=per_token_mean");
  for (const auto& [more, text] : std::vector<std::pair<Overrides, std::string>>{
           {{mean}, "train.lora: |lack head.weight, head.bias|train.lora.full=[head]"},
           {{mean, "train.lora.full=[transformer]"}, "leave it out of one of them"},
           {{"task.head=first_token", "train.lora.full=[head]"},
            "train.lora.full=[head, transformer.token_embedding, transformer.position_embedding]"}}) {
    CHECK_THAT(message_of(ExitCode::usage, [&] { train(more); }), Mentions(text));
    CHECK_FALSE(std::filesystem::exists(place / "classifier"));
  }
  train({mean, "train.lora.full=[head]", "train.learning_rate=0.01"});
  const auto source = by_name(checkpoint_of(place / "source", "best").model);
  for (const auto& [name, tensor] : checkpoint_of(place / "classifier").model) {
    INFO(name);
    if (!name.starts_with("head."))
      CHECK(torch::equal(tensor, source.at(name)) == (name.find(".mixer.") == std::string::npos));
  }
}

TEST_CASE("names of train.lora that name nothing, and frozen parameters with adapters, are errors", "[lora]") {
  const Workplace place;
  const auto options = adapts(place);
  for (const auto& [more, text] : std::vector<std::pair<Overrides, std::string>>{
           {{"train.lora.targets=[mixer.outputs]"}, "train.lora.targets: 'mixer.outputs'|did you mean 'mixer.output'?"},
           {{"train.lora.targets=[transformer.token_embedding]"}, "no matrix of the blocks|feed_forward.up"},
           {{"train.lora.full=[heads]"}, "train.lora.full: 'heads': no parameter"},
           {{"train.lora.full=[transformer.blocks.1]"}, "train.lora.full: transformer.blocks.1."},
           {{"model.mixer=average_pooling", "train.lora.targets=[mixer]"},
            "'mixer'|feed_forward.up, feed_forward.down"}}) {
    CAPTURE(text);
    CHECK_THAT(message_of(ExitCode::usage, [&] { place.train("run", joined(options, more)); }), Mentions(text));
    CHECK_FALSE(std::filesystem::exists(place / "run"));
  }
  CHECK_THAT(
      message_of(ExitCode::usage,
                 [&] {
                   const Parts parts(place.experiment(joined(options, {"train.freeze=[transformer.token_embedding]"})));
                 }),
      Mentions("train.freeze: 'transformer.token_embedding': no trained parameter|transformer.blocks.0"));
}

TEST_CASE("the log says how many parameters are trained, if not all are", "[lora]") {
  const Workplace place;
  const Parts plain(place.experiment({})), frozen(place.experiment({"train.freeze=[transformer.token_embedding]"}));
  CHECK(describe_trained(*plain.parameters).empty());
  CHECK_THAT(describe_trained(*frozen.parameters), ContainsSubstring(" parameters are trained"));
  place.train("adapted", adapts(place, {}, {"train.steps=1"}));
  CHECK_THAT(read_text(place / "adapted/train.log"), ContainsSubstring(" parameters are trained"));
}

}  // namespace metaformer::test_lora
