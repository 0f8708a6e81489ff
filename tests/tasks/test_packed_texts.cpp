// Texts of a classifier, several in a row of a training batch.

#include "support/any_mixer.h"
#include "tasks/task_examples.h"

namespace metaformer {

namespace {

Experiment experiment_of(const Workplace& place, const std::string& packing, const std::vector<std::string>& more) {
  place.folder().write("few.tsv", marked_table(20));
  auto overrides = classifier(place, {"data.path='" + (place / "few.tsv").string() + "'", "data.packing=" + packing,
                                      "model.width=8", "model.layers=2", "train.batch_size=1"});
  overrides.insert(overrides.end(), more.begin(), more.end());
  return place.experiment(overrides);
}

struct Answer {
  double loss = 0, weight = 0, rows = 0;
  torch::Tensor gradient;
};

// Of an epoch, in float64.
Answer answer_of(const ExperimentConfig& config) {
  const auto task = make_task(config, true);
  const auto model = make_model(config, sizes_of(task.data->codec()));
  model->to(torch::kDouble);
  torch::manual_seed(4);
  {
    const torch::NoGradGuard no_grad;
    for (auto& parameter : model->parameters()) parameter.normal_(0, 0.4);
  }
  Answer answer;
  torch::Tensor sum = torch::zeros({}, torch::kDouble);
  answer.rows = std::round(1 / task.batches->epochs_per_step());
  for (std::int64_t step = 0; step < static_cast<std::int64_t>(answer.rows); ++step) {
    const auto batch = task.batches->training_batch(step, 0, torch::kCPU);
    Pass pass{.training = true};
    const auto logits_lv = model->forward(batch, nullptr, pass).to(torch::kFloat);  // as weights of classes are
    sum = sum + task.objective->loss(logits_lv, batch);
    answer.weight += batch.weight.item<double>();
  }
  const auto loss = sum / answer.weight;
  loss.backward();
  answer.loss = loss.item<double>();
  std::vector<torch::Tensor> gradients;
  for (const auto& parameter : model->parameters())
    if (parameter.grad().defined()) gradients.push_back(parameter.grad().flatten());
  answer.gradient = torch::cat(gradients);
  return answer;
}

}  // namespace

TEST_CASE("packed texts have the loss and the gradients of texts in rows of their own", "[packing][classification]") {
  const Workplace place;
  const auto mixer = any_mixer();
  if (mixer->chooses_by_whole_sequence()) return;  // its chunks are made of all tokens of a row
  const std::string head = GENERATE("mean_pooled", "per_token_mean", "first_token");
  const auto more = GENERATE(values<std::vector<std::string>>(
      {{}, {"task.class_weights=balanced", "task.label_smoothing=0.2", "model.positions=rotary"}}));
  const auto with = [&](const std::string& packing) {
    auto config = experiment_of(place, packing, more).config;
    transformer(config).mixer = mixer;
    if (!mixer->has_scores()) transformer(config).positions = LearnedPositionsConfig{};
    classification(config).head = *make_kind<HeadConfig>(head);
    return answer_of(config);
  };
  CAPTURE(kind_of(mixer), head, more.size());
  const auto apart = with("none");
  CHECK(apart.rows == apart.weight);
  for (const std::string packing : {"{kind: spfhp, depth: 1}", "spfhp", "nnlshp"}) {
    const auto packed = with(packing);
    CHECK(packed.weight == apart.weight);
    if (packing.find("depth: 1") == std::string::npos) CHECK(packed.rows < 0.8 * apart.rows);
    CHECK(packed.loss == Approx(apart.loss).epsilon(1e-6));
    CHECK((packed.gradient - apart.gradient).norm().item<double>() < 1e-5 * apart.gradient.norm().item<double>());
  }
}

}  // namespace metaformer
