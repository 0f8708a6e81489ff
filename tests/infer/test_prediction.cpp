// Predicted classes of texts.

#include <cmath>

#include "infer/answers.h"
#include "run/checkpoint_surgery.h"
#include "support/failure.h"
#include "tasks/task_examples.h"

namespace metaformer::test_prediction {

TEST_CASE("predictions equal those of each text alone, with the labels of the checkpoint", "[classification]") {
  const Workplace place;
  place.train("run", classifier(place, {"train.steps=100", "train.learning_rate=1e-2"}));
  auto run = load_run(place / "run", "best", "cpu");
  CHECK(run.codec.labels == std::vector<std::string>{"bad", "good"});
  std::vector<std::vector<std::int32_t>> texts;
  for (const auto* text : {"word1 word2", "word3 marker word4 word5 never-seen", "word7"})
    texts.push_back(run.codec.tokenizer->encode(text));
  const auto together = predict(run, texts);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    CHECK(together[i].label == (i == 1 ? 1 : 0));
    CHECK(together[i].probabilities[0] + together[i].probabilities[1] == Approx(1));
    const auto alone = predict(run, {texts[i]}).front();
    CHECK(alone.probabilities[0] == Approx(together[i].probabilities[0]).margin(1e-6));
  }
}

TEST_CASE("a model with infinite or NaN results gives no predictions", "[checkpoint]") {
  const Workplace place;
  place.train("run", classifier(place, {"train.steps=4"}));
  const auto folder = place / "run/checkpoints/step-4";
  fill_weights(folder, 1e30);
  auto run = load_run(place / "run", "last", "cpu");
  const auto text = run.codec.tokenizer->encode("word1 marker");
  CHECK_THAT(message_of(ExitCode::diverged, [&] { predict(run, {text, text}); }), Mentions("2 of 2|not finite"));
  fill_weights(folder, std::nan(""));
  CHECK_THAT(message_of(ExitCode::diverged, [&] { load_run(place / "run", "last", "cpu"); }),
             ContainsSubstring("model.safetensors: ") && ContainsSubstring("is not finite"));
}

}  // namespace metaformer::test_prediction
