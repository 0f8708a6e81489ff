#include "tasks/task_examples.h"

namespace metaformer {

TEST_CASE("the first batch of every task is overfitted", "[training]") {
  const Workplace place;
  const std::string task = GENERATE("language_model", "masked_language_model", "sort", "classification");
  std::vector<std::string> overrides = {"train.steps=400",          "train.eval_interval=200",
                                        "train.learning_rate=1e-2", "train.schedule.warmup_steps=10",
                                        "train.batch_size=2",       "train.overfit_batch=true"};
  if (task == "masked_language_model") overrides.emplace_back("task=masked_language_model");
  if (task == "sort") overrides = sorter(overrides);
  if (task == "classification") overrides = classifier(place, overrides);
  const auto summary = place.train("run", overrides);
  CHECK(summary["train_loss"].get<double>() < 0.02);
  CHECK(summary["val_loss"].get<double>() == Approx(summary["train_loss"].get<double>()).margin(0.01));
}

}  // namespace metaformer
