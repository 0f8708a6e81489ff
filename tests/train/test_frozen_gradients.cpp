// Gradients where parameters are frozen, of every kind of model and of all that backward computes again.

#include <set>

#include "support/failure.h"
#include "tasks/task_examples.h"

namespace metaformer {

namespace {

// What has gradients of our own, or computes again: by name of the case.
const std::vector<std::pair<std::string, Overrides>> language_models = {
    {"plain", {}},
    {"bf16", {"train.precision=bf16", "model.bias=true"}},
    {"dropout", {"model.dropout=0.2"}},
    {"chunks of the feed-forward branch", {"model.feed_forward.chunks=3"}},
    {"chunks of a gated branch in bf16",
     {"model.feed_forward={kind: gated, chunks: 3}", "train.precision=bf16", "model.bias=true"}},
    {"chunks of the loss", {"train.loss_chunks=3"}},
    {"chunks of the loss, own head", {"train.loss_chunks=3", "model.embedding.tie=false"}},
    {"reversible", {"model.blocks=reversible"}},
    {"reversible, dropout", {"model.blocks=reversible", "model.dropout=0.2", "model.bias=true"}},
    {"reversible, t5", {"model.blocks=reversible", "model.positions=t5"}},
    {"reversible, transformer_xl", {"model.blocks=reversible", "model.positions=transformer_xl", "model.mixer=metric"}},
    {"reversible, lsh", {"model.blocks=reversible", "model.mixer={kind: lsh, chunk: 4}"}},
    {"reversible, none", {"model.blocks=reversible", "model.mixer=none"}},
    {"all", {"model.blocks=reversible", "model.feed_forward.chunks=2", "train.loss_chunks=2", "model.mixer=quadratic"}},
    {"all in bf16",
     {"model.blocks=reversible", "model.feed_forward.chunks=2", "train.loss_chunks=2", "train.precision=bf16"}},
    {"metric", {"model.mixer=metric", "model.positions=rotary", "model.norm=rms_norm"}},
    {"distance", {"model.mixer={kind: metric, constraint: psd, score: distance}", "model.positions=transformer_xl"}},
    {"quadratic", {"model.mixer={kind: quadratic, form: full}", "model.positions=shaw"}},
    {"lsh", {"model.mixer={kind: lsh, chunk: 4}"}},
    {"lsh in chunks of 16", {"model.mixer={kind: lsh, chunk: 16}", "model.context=48"}},
    {"pooling", {"model.mixer=average_pooling"}},
    {"post-norm", {"model.norm.position=post", "model.feed_forward.output_activation=true"}},
    {"memory", {"model.memory=8", "model.positions=transformer_xl", "model.blocks=reversible"}},
    {"lstm", {"model={kind: lstm, width: 16, layers: 2, context: 16}"}},
    {"gru", {"model={kind: gru, width: 16, layers: 2, context: 16}", "train.loss_chunks=3"}},
    {"feed_forward", {"model={kind: feed_forward, window: 3, width: 16, hidden: 12, context: 16}"}},
    {"masked", {"task=masked_language_model", "model.blocks=reversible"}},
    {"masked, chunks", {"task=masked_language_model", "train.loss_chunks=3", "model.embedding.tie=true"}},
};

const std::vector<std::pair<std::string, Overrides>> classifiers = {
    {"classifier", {"task.head=first_token", "data.packing=spfhp"}},
    {"reversible classifier", {"model.blocks=reversible", "model.feed_forward.chunks=2", "task.head=mean_pooled"}},
    {"n-grams", {"model.embedding.ngrams={order: 2, buckets: 50}", "task.head=per_token_mean"}},
    {"regions", {"model.embedding.region=sequence", "model.blocks=reversible"}},
    {"regions alone",
     {"model.embedding.region=sequence", "model.layers=0", "model.heads=4", "model.positions=none",
      "task.head={kind: max_pooled, bag: {kind: naive_bayes, buckets: 500}}"}},
};

// The gradients of a step of one model, for any parameters that are frozen.
struct Gradients {
  explicit Gradients(const Experiment& experiment) : parts(experiment) {}

  torch::Tensor where(const std::function<bool(const std::string& name)>& freezes) {
    parts.parameters->set_rates([&](const auto& view) { return freezes(view.name) ? 0.0 : 1.0; });
    parts.parameters->gradients().zero_();
    for (const auto& view : parts.parameters->views())
      if (view.gradient_rows != nullptr) view.gradient_rows->clear();
    parts.memory->reset();
    parts.compute_gradients(3);
    return parts.parameters->gradients().clone();
  }

  // That `freezes` changes no byte of the others, and leaves those that it freezes without a gradient.
  void check(const torch::Tensor& whole, const std::function<bool(const std::string& name)>& freezes) {
    const auto part = where(freezes);
    for (const auto& view : parts.parameters->views()) {
      INFO("gradient of " << view.name);
      const auto found = ParameterBuffer::part(part, view), expected = ParameterBuffer::part(whole, view);
      CHECK((freezes(view.name) ? found.abs().max().item<double>() == 0 : torch::equal(found, expected)));
    }
  }

  Parts parts;
};

// Up to its last dot, and up to the one before: a layer, and what it belongs to.
std::set<std::string> groups_of(const ParameterBuffer& parameters) {
  std::set<std::string> groups;
  for (const auto& view : parameters.views())
    for (auto name = view.name; name.find('.') != std::string::npos;) {
      name = name.substr(0, name.rfind('.'));
      groups.insert(name);
    }
  return groups;
}

void check_every_freeze(const Experiment& experiment) {
  Gradients gradients(experiment);
  const auto whole = gradients.where([](const auto&) { return false; });
  const auto groups = groups_of(*gradients.parts.parameters);
  const auto is_in = [](const std::string& name, const std::string& group) { return name.starts_with(group + "."); };
  for (const auto& group : groups) {
    const auto& views = gradients.parts.parameters->views();
    const auto count = std::count_if(views.begin(), views.end(), [&](auto& view) { return is_in(view.name, group); });
    INFO("frozen: " << group);
    if (count < std::ssize(views)) gradients.check(whole, [&](const auto& name) { return is_in(name, group); });
  }
  for (const auto& view : gradients.parts.parameters->views()) {
    INFO("frozen: all but " << view.name);
    const bool matters = ParameterBuffer::part(whole, view).abs().max().item<double>() > 0;
    if (matters) gradients.check(whole, [&](const auto& name) { return name != view.name; });
  }
}

}  // namespace

TEST_CASE("what is frozen has no gradient and changes none of the others, in every kind of model", "[frozen]") {
  const Workplace place;
  const std::string slices = GENERATE("1", "2");
  std::vector<std::pair<std::string, Overrides>> models = language_models;
  for (const auto& [name, overrides] : classifiers)
    if (slices == "1" || name.find("region") == std::string::npos)  // slices do not take tables of regions
      models.emplace_back(name, classifier(place, joined({"data.cache=false"}, overrides)));
  models.emplace_back("pairs", pairs(place));
  models.emplace_back("pairs in chunks", pairs(place, {"model.feed_forward.chunks=2", "train.loss_chunks=2"}));
  for (const auto& [name, overrides] : models) {
    INFO(name << ", slices " << slices);
    check_every_freeze(place.experiment(joined(overrides, {"train.cpu_slices=" + slices})));
  }
}

TEST_CASE("a training of parameters that the loss does not depend on is an error", "[frozen]") {
  const Workplace place;
  const std::string frozen =
      "train.freeze=[transformer.token_embedding, transformer.position_embedding, transformer.blocks.0.feed_forward, "
      "transformer.blocks.1, transformer.blocks.0.feed_forward_norm, transformer.final_norm]";
  const auto [code, message] = failure([&] { place.train("run", {"model.mixer=none", frozen}); });
  CHECK(code == ExitCode::usage);
  CHECK_THAT(message, ContainsSubstring("train.freeze: "));
}

}  // namespace metaformer
