// Gradients where parameters are frozen, of every kind of model and of all that backward computes again.

#include <set>

#include "support/failure.h"
#include "tasks/task_examples.h"

namespace metaformer {

namespace {

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
  CHECK_THAT(message_of(ExitCode::usage,
                        [&] {
                          place.train("run", {"model.mixer=none", frozen});
                        }),
             ContainsSubstring("train.freeze: "));
}

}  // namespace metaformer
