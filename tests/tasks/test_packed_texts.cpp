// Packed texts in the training batches of a classifier.

#include "support/any_mixer.h"
#include "support/any_positions.h"
#include "tasks/task_examples.h"

namespace metaformer::test_packed_texts {

namespace {

Experiment experiment_of(const Workplace& place, const std::string& packing, const std::vector<std::string>& more) {
  place.folder().write("few.tsv", marked_table(20));
  auto overrides = classifier(place, {"data.path='" + (place / "few.tsv").string() + "'", "data.packing=" + packing,
                                      "model.width=8", "model.layers=2", "train.batch_size=1"});
  overrides.insert(overrides.end(), more.begin(), more.end());
  return place.experiment(overrides);
}

// A model in float64 with random weights.
std::shared_ptr<SequenceModel> random_model(const ExperimentConfig& config, const Task& task) {
  std::shared_ptr<SequenceModel> model = make_model(config, sizes_of(*task.codec));
  model->to(torch::kDouble);
  torch::manual_seed(4);
  const torch::NoGradGuard no_grad;
  for (auto& parameter : model->parameters()) parameter.normal_(0, 0.4);
  return model;
}

struct Answer {
  double loss = 0, weight = 0, rows = 0;
  torch::Tensor gradient;
};

// The loss and the gradient of an epoch, in float64.
Answer answer_of(const ExperimentConfig& config) {
  const auto task = make_task(config, true);
  const auto model = random_model(config, task);
  Answer answer;
  torch::Tensor sum = torch::zeros({}, torch::kDouble);
  answer.rows = std::round(1 / task.batches->epochs_per_step());
  for (std::int64_t step = 0; step < static_cast<std::int64_t>(answer.rows); ++step) {
    const auto batch = task.batches->training_batch(step, 0, torch::kCPU);
    Pass pass{.training = true};
    const auto logits_lv = model->forward(batch, nullptr, pass).to(torch::kFloat);  // the type of class weights
    sum = sum + task.objective(logits_lv, batch);
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

// Texts of nine words and of one, so that a row of many short texts is beside one of a long text and padding.
std::string long_and_short_texts(const std::string& word) {
  std::string table = "text\tlabel\n";
  for (int i = 0; i < 18; ++i) {
    for (int length = i % 3 == 0 ? 9 : 1; length > 0; --length) table += word + std::to_string(i + length) + " ";
    table += i % 2 == 0 ? "\tgood\n" : "\tbad\n";
  }
  return table;
}

}  // namespace

TEST_CASE("packed texts have the loss and gradients of texts in separate rows", "[packing][classification]") {
  const Workplace place;
  const auto mixer = any_mixer();
  if (chooses_by_whole_sequence(mixer)) return does_not_apply("its chunks are made of all tokens of a row");
  const std::string head = GENERATE("mean_pooled", "per_token_mean", "first_token");
  const auto more = GENERATE(values<std::vector<std::string>>(
      {{}, {"task.class_weights=balanced", "task.label_smoothing=0.2", "model.positions=rotary"}}));
  const auto with = [&](const std::string& packing) {
    auto config = experiment_of(place, packing, more).config;
    transformer(config).mixer = mixer;
    if (!has_scores(mixer)) transformer(config).positions = LearnedPositionsConfig{};
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

TEST_CASE("packed texts have the logits of single texts, with every head, packing and kind of positions",
          "[packing][positions][classification]") {
  const Workplace place;
  place.folder().write("train.tsv", long_and_short_texts("word"));
  place.folder().write("held_out.tsv", long_and_short_texts("other"));
  const auto positions = any_positions();
  const std::string head = GENERATE("mean_pooled", "per_token_mean", "first_token", "max_pooled");
  const std::string packing = GENERATE("{kind: spfhp, depth: 0}", "spfhp", "nnlshp");
  CAPTURE(kind_of(positions), head, packing);
  auto config = experiment_of(place, packing,
                              {"data.path='" + (place / "train.tsv").string() + "'", "train.batch_size=3",
                               "data.validation_path='" + (place / "held_out.tsv").string() + "'"})
                    .config;
  transformer(config).positions = positions;
  classification(config).head = *make_kind<HeadConfig>(head);
  const auto task = make_task(config, true);
  const auto model = random_model(config, task);
  const torch::NoGradGuard no_grad;
  bool is_padded = false;
  for (std::int64_t step = 0; step < 4; ++step) {
    auto batch = task.batches->training_batch(step, 0, torch::kCPU);
    const auto logits_lv = model->evaluate(batch);
    for (std::int64_t text = 0; text < batch.label_rows_l2.size(0); ++text) {
      const auto row = batch.label_rows_l2[text][0].item<std::int64_t>();
      const auto ids_1c =
          batch.ids_bc[row].masked_select(batch.segments_bc[row] == batch.label_rows_l2[text][1]).unsqueeze(0);
      CHECK(torch::allclose(logits_lv[text], model->evaluate({.ids_bc = ids_1c})[0], 1e-10, 1e-12));
    }
    const auto is_padding_bc = batch.segments_bc < 0;
    is_padded = is_padded || is_padding_bc.any().item<bool>();
    batch.ids_bc = batch.ids_bc.masked_fill(is_padding_bc, 1);
    CHECK(torch::equal(model->evaluate(batch), logits_lv));
  }
  CHECK(is_padded);
}

}  // namespace metaformer::test_packed_texts
