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

TEST_CASE("a temperature changes the probabilities of predictions, but no label", "[classification][calibration]") {
  const Workplace place;
  place.train("run", classifier(place, {"train.steps=20"}));
  auto run = load_run(place / "run", "best", "cpu");
  std::vector<std::vector<std::int32_t>> texts;
  for (int i = 0; i < 30; ++i)
    texts.push_back(run.codec.tokenizer->encode("word" + std::to_string(i) + (i % 3 == 0 ? " marker" : " word1")));
  const double temperature = GENERATE(0.05, 0.5, 3.0, 20.0);
  const auto raw = predict(run, texts), scaled = predict(run, texts, temperature);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    CHECK(scaled[i].label == raw[i].label);
    const auto log_odds = [&](const Prediction& given) {
      return std::log(given.probabilities[1] / given.probabilities[0]);
    };
    CHECK(log_odds(scaled[i]) * temperature == Approx(log_odds(raw[i])).margin(1e-9));
  }
  // class_answers takes the temperature of the checkpoint, unless it is turned off.
  run.progress.temperature = temperature;
  for (const bool calibrated : {true, false}) {
    const auto answers = class_answers(run, {.calibrated = calibrated}).answer(texts);
    for (std::size_t i = 0; i < texts.size(); ++i)
      CHECK(answers[i]["probabilities"]["good"] == (calibrated ? scaled : raw)[i].probabilities[1]);
  }
}

TEST_CASE("the threshold of two classes is that of the second, and of more classes that of the likeliest",
          "[classification]") {
  const Prediction no{.label = 0, .probabilities = {0.75, 0.25}}, yes{.label = 1, .probabilities = {0.25, 0.75}},
      even{.label = 0, .probabilities = {0.5, 0.5}}, sure{.label = 1, .probabilities = {0, 1}},
      three{.label = 2, .probabilities = {0.25, 0.25, 0.5}};
  for (const auto* prediction : {&no, &yes, &even, &sure, &three})
    CHECK(chosen_class(*prediction, std::nullopt) == prediction->label);
  for (const auto* prediction : {&no, &yes, &even, &sure}) {
    CHECK(chosen_class(*prediction, 0) == 1);
    CHECK(chosen_class(*prediction, 1) == (prediction == &sure ? 1 : 0));
    CHECK(chosen_class(*prediction, prediction->probabilities[1]) == 1);  // exactly equal
  }
  CHECK(chosen_class(no, 0.2) == 1);
  CHECK(chosen_class(no, std::nextafter(0.25, 1)) == 0);
  CHECK(chosen_class(yes, 0.8) == 0);
  CHECK(chosen_class(even, 0.5) == 1);
  CHECK(chosen_class(three, 0) == 2);
  CHECK(chosen_class(three, 0.5) == 2);
  CHECK_FALSE(chosen_class(three, std::nextafter(0.5, 1)));
  CHECK_FALSE(chosen_class(three, 1));
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
