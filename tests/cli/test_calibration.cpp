// Temperatures of classifiers, thresholds of predictions, and tables of classes, as the program shows them.

#include <cmath>

#include "base/digest.h"
#include "cli/program.h"

namespace metaformer::test_calibration_commands {

namespace {

// Texts whose words give the label with exceptions, so that no model is always right.
std::string noisy_table(int count, int classes, int first = 0) {
  const std::vector<std::string> names = {"no", "yes", "perhaps"};
  std::string table = "text,label\n";
  for (int i = first; i < first + count; ++i) {
    const auto word = static_cast<std::size_t>(i * 7 % classes);
    const auto label = i % 5 == 0 ? (word + 1) % static_cast<std::size_t>(classes) : word;
    table += "n" + std::to_string(i * 11 % 37) + " w" + std::to_string(i * 5 % 13) + " about " + names[word] + "," +
             names[label] + "\n";
  }
  return table;
}

void train(const Program& program, int classes, const Arguments& changes = {}, const std::string& run = "run") {
  program.folder().write("train.csv", noisy_table(240, classes));
  program.folder().write("validation.csv", noisy_table(90, classes, 1000));
  program.folder().write("test.csv", noisy_table(80, classes, 2000));
  const Arguments usual =
      "data.path=train.csv data.validation_path=validation.csv data.test_path=test.csv task.baselines=false "
      "train.steps=30 train.eval_interval=15 train.learning_rate=0.01 model.layers=1";
  program.succeed({"train", "--config", "text_classifier.yaml", "--out", run}, set(joined(usual, changes)));
}

// Removes the temperature, as in a checkpoint of an earlier version.
void make_old(const Program& program, const std::string& checkpoint) {
  auto meta = nlohmann::ordered_json::parse(program.read(checkpoint + "/meta.json"));
  REQUIRE(meta.erase("temperature") == 1);
  meta.erase("sha256");
  meta["sha256"] = sha256(meta.dump());
  program.folder().write(checkpoint + "/meta.json", meta.dump(2) + "\n");
}

const std::string lines = "n1 about yes\nn2 about no\nw3 w4\nn5 w1 about yes\nabout no no no\nyes\n";

std::vector<Json> predict(const Program& program, const Arguments& more = {}) {
  program.folder().write("lines.txt", lines);
  return json_lines(program.succeed(joined("predict --run run lines.txt --json", more)));
}

double positive(const Json& answer) { return answer.at("probabilities").at("yes"); }

}  // namespace

TEST_CASE("training stores a temperature, predict uses it, and evaluate shows its effect", "[cli][calibration]") {
  const Program program;
  train(program, 2);
  const auto messages = program.read("err");
  CHECK_THAT(messages, ContainsSubstring("temperature ") && ContainsSubstring("true \\ predicted") &&
                           ContainsSubstring("precision  recall"));
  const auto summary = program.read_json("run/summary.json");
  const double temperature = summary.at("temperature");
  CHECK(program.read_json("run/checkpoints/best/meta.json").at("temperature") == temperature);
  CHECK(temperature != 1);

  const auto scaled = predict(program), raw = predict(program, {"--uncalibrated"});
  for (std::size_t i = 0; i < raw.size(); ++i) {
    CHECK(scaled[i].at("label") == raw[i].at("label"));
    const auto log_odds = [&](const Json& answer) { return std::log(positive(answer) / (1 - positive(answer))); };
    CHECK(log_odds(scaled[i]) * temperature == Approx(log_odds(raw[i])).epsilon(1e-6));
  }
  const auto json = program.json("evaluate --run run --split test");
  for (const auto* key : {"loss", "scaled_loss", "calibration_error", "scaled_calibration_error", "temperature"}) {
    CAPTURE(key);
    CHECK(json.at(key) == summary["test"].at(key));
  }
  for (const auto& [label, counts] : json.at("classes").items()) {
    CAPTURE(label);
    const double correct = counts.at("correct");
    if (counts.contains("precision")) CHECK(counts.at("precision") == correct / counts.at("predicted").get<double>());
    CHECK(counts.at("recall") == correct / counts.at("texts").get<double>());
  }
  const auto plain = program.succeed("evaluate --run run --split test");
  CHECK_THAT(plain, ContainsSubstring("  class  precision  recall      F1  texts\n  no ") &&
                        ContainsSubstring("  true \\ predicted") && ContainsSubstring("  scaled_calibration_error"));
  CHECK(program.json("evaluate --run run test.csv").at("scaled_loss").get<double>() ==
        Approx(json.at("scaled_loss").get<double>()).epsilon(1e-6));
  // The fit is that of the same texts.
  const auto validation = program.json("evaluate --run run");
  CHECK(validation.at("scaled_loss").get<double>() <= validation.at("loss").get<double>() + 1e-6);
}

TEST_CASE("evaluate --fit-temperature fits the temperature of a checkpoint without one, and stores it",
          "[cli][calibration]") {
  const Program program;
  train(program, 3);
  const auto trained = program.read("run/checkpoints/best/meta.json");
  const auto fitted = Json::parse(trained).at("temperature");
  const auto files = program.read("run/checkpoints/best/model.safetensors");
  make_old(program, "run/checkpoints/best");
  const auto old = program.json("evaluate --run run --split test");
  CHECK_FALSE((old.contains("temperature") || old.contains("scaled_loss")));
  CHECK(predict(program) == predict(program, {"--uncalibrated"}));

  const auto result = program.json("evaluate --run run --split test --fit-temperature");
  CHECK_THAT(program.read("err"), ContainsSubstring("checkpoints/best: temperature "));
  CHECK(result.at("temperature") == fitted);  // the evaluations of this run see the whole split
  CHECK(result.at("loss") == old.at("loss"));
  CHECK(program.read("run/checkpoints/best/meta.json") == trained);
  CHECK(program.read("run/checkpoints/best/model.safetensors") == files);
  CHECK(program.json("evaluate --run run --split test") == result);
  CHECK(predict(program) != predict(program, {"--uncalibrated"}));
  program.succeed("train --resume run", set({"train.steps=32"}));
  CHECK(program.read_json("run/summary.json").at("steps") == 32);
}

TEST_CASE("the option --fit-temperature is an error where it has no effect", "[cli][calibration]") {
  const Program program;
  train(program, 2);
  program.train("text");
  const auto meta = program.read("run/checkpoints/best/meta.json");
  for (const auto& [words, parts] : std::vector<std::pair<Arguments, Arguments>>{
           {"evaluate --run text --fit-temperature", {"--fit-temperature", "language_model"}},
           {"evaluate --run run --fit-temperature --set model.mixer.backend=composed",
            {"--fit-temperature", "leave out --set model.mixer.backend=composed"}},
           {"evaluate --run run --fit-temperature --with run", {"--fit-temperature"}},
           {"evaluate --run run test.csv --fit-temperature", {"--fit-temperature"}}})
    program.refuse(words, 2, parts);
  CHECK(program.read("run/checkpoints/best/meta.json") == meta);
}

TEST_CASE("validation texts that determine no temperature keep 1, with a line about it", "[cli][calibration]") {
  const Program program;
  program.folder().write("one.csv", "text,label\nn1 about yes,yes\nn2 about yes,yes\n");
  train(program, 2, {"data.validation_path=one.csv"});
  CHECK_THAT(program.read("err"), ContainsSubstring("temperature 1, not fitted"));
  CHECK(program.read_json("run/summary.json").at("temperature") == 1);
  CHECK(predict(program) == predict(program, {"--uncalibrated"}));
  CHECK_THAT(program.read("run/summary.json"), !ContainsSubstring("NaN") && !ContainsSubstring("Infinity"));
}

TEST_CASE("a linear model has a temperature, and an ensemble takes that of each member", "[cli][calibration]") {
  const Program program;
  train(program, 2);
  program.succeed("train --config imdb_linear.yaml --out linear",
                  set({"data.corpus=tinyshakespeare", "data.path=train.csv", "data.validation_path=validation.csv",
                       "data.test_path=test.csv"}));
  CHECK(program.read_json("linear/summary.json").at("temperature") ==
        program.read_json("linear/checkpoints/best/meta.json").at("temperature"));
  const auto together = program.json("evaluate --run run --with run --split test");
  const auto alone = program.json("evaluate --run run --split test");
  CHECK(together.at("scaled_loss").get<double>() == Approx(alone.at("scaled_loss").get<double>()).epsilon(1e-9));
  CHECK(together.at("loss").get<double>() == Approx(alone.at("loss").get<double>()).epsilon(1e-6));
  make_old(program, "run/checkpoints/best");
  CHECK_FALSE(program.json("evaluate --run linear --with run --split test").contains("scaled_loss"));
}

TEST_CASE("the threshold of two classes decides about the second class, in lines, tables and JSON",
          "[cli][calibration]") {
  const Program program;
  train(program, 2);
  const auto usual = predict(program);
  std::vector<double> values;
  for (const auto& answer : usual) values.push_back(positive(answer));
  for (const double threshold : {0.0, 1.0, 0.3, 0.5, 0.9, values[0]}) {
    const auto text = Json(threshold).dump();
    CAPTURE(text);
    const auto answers = predict(program, {"--threshold", text});
    CHECK_THAT(program.read("err"), ContainsSubstring("'yes' from a probability of"));
    const auto plain = lines_of(program.succeed("predict --run run lines.txt", {"--threshold", text}));
    for (std::size_t i = 0; i < answers.size(); ++i) {
      const auto* label = values[i] >= threshold ? "yes" : "no";
      CHECK(answers[i].at("label") == label);
      CHECK(answers[i].at("probability") == answers[i].at("probabilities").at(label));
      CHECK(answers[i].at("probabilities") == usual[i].at("probabilities"));
      CHECK(plain[i].substr(0, plain[i].find('\t')) == label);
    }
  }
  for (const auto& line : lines_of(program.succeed("predict --run run test.csv --threshold 0")))
    CHECK(line.starts_with("yes\t"));
}

TEST_CASE("below the threshold the class of a text is unsure if there are more than two", "[cli][calibration]") {
  const Program program;
  train(program, 3);
  const auto usual = predict(program);
  for (const auto& answer : predict(program, {"--threshold", "1"})) {
    CHECK(answer.at("label").is_null());
    CHECK(answer.at("probability") < 1);
  }
  CHECK(predict(program, {"--threshold", "0"}) == usual);
  const double threshold = usual[0].at("probability");
  const auto answers = predict(program, {"--threshold", Json(threshold).dump()});
  const auto plain = lines_of(program.succeed("predict --run run lines.txt", {"--threshold", Json(threshold).dump()}));
  CHECK(answers[0].at("label") == usual[0].at("label"));  // exactly equal
  for (std::size_t i = 0; i < usual.size(); ++i) {
    const bool unsure = usual[i].at("probability") < threshold;
    CHECK(answers[i].at("label").is_null() == unsure);
    CHECK(plain[i].starts_with("unsure\t") == unsure);
  }
  const auto together = program.succeed("predict --run run lines.txt --json --batch-size 2 --processes 2",
                                        {"--threshold", Json(threshold).dump()});
  CHECK(json_lines(together).size() == answers.size());
}

TEST_CASE("thresholds outside 0 to 1, of other tasks, or with a class of that name are errors", "[cli][calibration]") {
  const Program program;
  train(program, 2);
  program.folder().write("lines.txt", lines);
  for (const std::string wrong : {"-0.1", "1.01", "nan", "inf", "much", ""})
    program.refuse({"predict", "--run", "run", "lines.txt", "--threshold=" + wrong}, 2, {"--threshold"});
  program.train("text");
  program.refuse("predict --run text lines.txt --threshold 0.5", 2, {"predict needs a classifier"});
  program.folder().write("pairs.tsv", "source\ttarget\na b\tb a\nb c\tc b\n");
  program.succeed("train --config small.yaml --out pairs",
                  set({"task=sequence_to_sequence", "data.path=pairs.tsv", "data.validation_path=pairs.tsv",
                       "data.tokenizer={kind: word, min_count: 1}", "train.steps=1",
                       "model={kind: encoder_decoder, layers: 1, heads: 2, width: 16, context: 16}"}));
  for (const Arguments& flag : {Arguments{"--threshold", "0.5"}, {"--uncalibrated"}})
    program.refuse(joined("predict --run pairs lines.txt", flag), 2, {flag.front(), "sequence_to_sequence"});
  program.refuse("predict --run run lines.txt --threshold 0.5 --scores", 2, {"--scores"});

  std::string table = "text,label\n";
  for (int i = 0; i < 60; ++i)
    table += "n" + std::to_string(i) + " w" + std::to_string(i % 3) + "," +
             std::vector<std::string>{"a", "b", "unsure"}[static_cast<std::size_t>(i % 3)] + "\n";
  program.folder().write("named.csv", table);
  train(program, 3, {"data.path=named.csv", "data.validation_path=named.csv", "data.test_path=named.csv"}, "named");
  program.refuse("predict --run named lines.txt --threshold 0.5", 2, {"--threshold 0.5", "'unsure'", "--json"});
  program.succeed("predict --run named lines.txt --threshold 0.5 --json");
}

}  // namespace metaformer::test_calibration_commands
