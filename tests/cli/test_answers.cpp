// What checkpoints answer: sample, predict.

#include <sstream>

#include "cli/program.h"

TEST_CASE("sample takes prompts from a file or a conversation, and gives several texts", "[cli]") {
  const Program program;
  program.succeed({"train", "--config", "small.yaml", "--out", "run"});
  const Arguments common = {"sample", "--run", "run", "--tokens", "12", "--seed", "3"};
  const auto with = [&](Arguments more) {
    more.insert(more.begin(), common.begin(), common.end());
    return more;
  };
  program.folder().write("prompt.txt", "to be, or\nnot");
  const auto from_file = program.succeed(with({"--prompt-file", "prompt.txt"}));
  CHECK(from_file.starts_with("to be, or\nnot"));
  CHECK(from_file == program.succeed(with({"--prompt", "to be, or\nnot"})));
  CHECK(program.run(with({"--prompt", "a", "--prompt-file", "prompt.txt"})).code == 2);
  CHECK(program.run(with({"--prompt-file", "missing.txt"})).code == 2);

  const auto several = nlohmann::json::parse(program.succeed(with({"--prompt", "to", "--num-samples", "3", "--json"})));
  CHECK(several.at("samples").size() == 3);
  CHECK(several.at("tokens") == 36);
  CHECK(several.at("tokens_per_second").get<double>() > 0);
  CHECK(several["samples"][0]["text"] != several["samples"][1]["text"]);
  const auto single = nlohmann::json::parse(program.succeed(with({"--prompt", "to", "--json"})));
  CHECK(single.at("text") == several["samples"][0]["text"]);
  CHECK(single.at("text").get<std::string>().size() == 12);

  const auto conversation = program.run_with_input(with({"--interactive"}), "to be\n~\nnot\n");
  CHECK(conversation.code == 0);
  CHECK_THAT(conversation.err, ContainsSubstring("line 2: prompt '~': the character '~'"));
  CHECK(conversation.out == program.succeed(with({"--prompt", "to be"})) + program.succeed(with({"--prompt", "not"})));
}

TEST_CASE("sample sorts with a sorter", "[cli]") {
  const Program program;
  program.succeed({"train", "--config", "sorter_scaled_dot_product.yaml", "--set", "train.steps=400", "--set",
                   "train.eval_interval=400", "--out", "run"});
  CHECK(program.succeed({"sample", "--run", "run", "--prompt", "2 0 1 1 0 2"}) == "0 0 1 1 2 2\n");
  CHECK(program.succeed({"sample", "--run", "run", "--prompt", "0,0,2,0,0,1", "--seed", "9"}) == "0 0 0 0 1 2\n");
  const auto conversation =
      program.run_with_input({"sample", "--run", "run", "--interactive"}, "1 1 1 1 1 0\n1 2\n2 2 2 1 1 1\n");
  CHECK(conversation.out == "0 1 1 1 1 1\n1 1 1 2 2 2\n");
  for (const auto& [prompt, text] : {std::pair("2 0 1", "3 numbers; this model sorts 6"),
                                     {"2 0 1 1 0 7", "the number '7' is not among 0 ... 2"},
                                     {"2 0 x 1 0 2", "'x' is not a number"}}) {
    const auto result = program.run({"sample", "--run", "run", "--prompt", prompt});
    CHECK(result.code == 2);
    CHECK_THAT(result.err, ContainsSubstring(text));
  }
  CHECK(program.run({"predict", "--run", "run"}).code == 2);
  const auto metrics =
      nlohmann::json::parse(program.succeed({"evaluate", "--run", "run", "--split", "test", "--json"}));
  CHECK(metrics.at("exact_match").get<double>() > 0.9);
}

TEST_CASE("a masked language model predicts hidden tokens, and continues no text", "[cli][masking]") {
  const Program program;
  const auto trained =
      program.run({"train", "--config", "small.yaml", "--set", "task=masked_language_model", "--out", "run", "--json"});
  REQUIRE(trained.code == 0);
  const auto metrics = nlohmann::json::parse(program.succeed({"evaluate", "--run", "run", "--json"}));
  for (const auto* name : {"loss", "perplexity", "accuracy", "targets", "unigram_entropy"})
    CHECK(metrics.contains(name));
  for (const std::string command : {"sample", "predict"}) {
    const auto refused = program.run({command, "--run", "run"});
    CHECK(refused.code == 2);
    CHECK_THAT(refused.err, ContainsSubstring("masked_language_model"));
  }
}

namespace {

// A classifier of texts with and without the word "marker".
void train_classifier(const Program& program, const Arguments& overrides = {}, const std::string& run = "run") {
  std::string table = "text,label\n";
  for (int i = 0; i < 300; ++i) {
    const bool marked = i % 2 == 1;
    const auto words = "w" + std::to_string(i * 7 % 31) + ", w" + std::to_string(i * 11 % 23);
    table += "\"" + words + (marked ? " marker" : " other") + "\"," + (marked ? "yes\n" : "no\n");
  }
  program.folder().write("table.csv", table);
  Arguments changes = {"data.path=table.csv", "data.validation_fraction=0.4", "train.steps=60",
                       "train.learning_rate=0.01", "train.eval_interval=60"};
  changes.insert(changes.end(), overrides.begin(), overrides.end());
  Arguments arguments = {"train", "--config", "text_classifier.yaml", "--out", run, "--set"};
  arguments.insert(arguments.end(), changes.begin(), changes.end());
  program.succeed(arguments);
}

std::string without_speed(const std::string& messages) {
  std::istringstream lines(messages);
  std::string kept;
  for (std::string line; std::getline(lines, line);)
    if (!line.ends_with("/s")) kept += line + "\n";
  return kept;
}

}  // namespace

TEST_CASE("predict answers every line in order and names malformed ones", "[cli]") {
  const Program program;
  train_classifier(program);
  std::string input;
  const int lines = 500;
  for (int i = 1; i <= lines; ++i)
    input += i == 17 ? "\xff\xfe\n" : i == 400 ? "  \n" : i % 3 == 0 ? "w1 marker\n" : "w2 other\r\n";
  const auto result = program.run_with_input({"predict", "--run", "run"}, input);
  CHECK(result.code == 3);
  CHECK_THAT(result.err, ContainsSubstring("standard input:17: no prediction: ") &&
                             ContainsSubstring("standard input:400: no prediction: the line is blank") &&
                             ContainsSubstring("2 of 500 lines got no prediction"));
  std::istringstream stream(result.out);
  int number = 0;
  for (std::string line; std::getline(stream, line);) {
    ++number;
    const std::string label = number == 17 || number == 400 ? "" : number % 3 == 0 ? "yes" : "no";
    CHECK(line.substr(0, line.find('\t')) == label);
  }
  CHECK(number == lines);

  program.folder().write("texts.txt", "w1 marker");
  const auto json = nlohmann::json::parse(program.succeed({"predict", "--run", "run", "texts.txt", "--json"}));
  CHECK(json.at("line") == 1);
  CHECK(json.at("label") == "yes");
  CHECK(json.at("probability") == json.at("probabilities").at("yes"));
  CHECK(program.run_with_input({"predict", "--run", "run"}, "").code == 0);
  CHECK(program.run({"sample", "--run", "run"}).code == 2);
  for (const Arguments& more : {Arguments{}, {"--random-batches", "3"}}) {
    Arguments arguments = {"evaluate", "--run", "run", "--split", "test"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const auto test = program.run(arguments);
    CHECK(test.code == 2);
    CHECK_THAT(test.err, ContainsSubstring("data.test_path is not set"));
  }
  const auto estimate =
      nlohmann::json::parse(program.succeed({"evaluate", "--run", "run", "--random-batches", "3", "--json"}));
  CHECK(estimate.at("texts") == 96);
}

TEST_CASE("a label that hardly any training text has is warned of, a rare class is not", "[cli]") {
  const Program program;
  const auto errors_with = [&](int texts, const std::string& label) {
    std::string table = "text,label\n";
    for (int i = 0; i < 120; ++i) table += "text number " + std::to_string(i) + (i % 2 == 0 ? ",0\n" : ",1\n");
    for (int i = 0; i < texts; ++i) table += "more " + std::to_string(i) + "," + label + "\n";
    program.folder().write("table.csv", table);
    program.folder().write("held_out.csv", "text,label\none,1\ntwo,0\n");
    const auto result =
        program.run({"train", "--config", "text_classifier.yaml", "--out", "run" + std::to_string(texts), "--set",
                     "data.path=table.csv", "data.validation_path=held_out.csv", "train.steps=1",
                     "train.schedule.warmup_steps=0", "task.baselines=false"});
    CHECK(result.code == 0);
    return result.err;
  };
  CHECK_THAT(errors_with(1, "7"), ContainsSubstring("warning: 1 of the 121 training texts have the label '7'"));
  CHECK_THAT(errors_with(12, "2"), !ContainsSubstring("warning"));
}

TEST_CASE("an ensemble is the mean of what its members predict, text by text", "[cli]") {
  const Program program;
  // Of different tokenizers, for which the texts have different orders of length.
  std::string tests = "text,label\n", lines;
  std::vector<std::string> labels;
  for (int i = 0; i < 20; ++i) {
    const bool marked = i * 7 % 5 < 2;
    const auto text =
        std::string(i % 4 == 0 ? "abcdefghij " : "a b ") + (marked ? "marker" : "other") + (i % 3 == 0 ? " x" : "");
    tests += text + (marked != (i % 6 == 0) ? ",yes\n" : ",no\n");
    labels.push_back(marked != (i % 6 == 0) ? "yes" : "no");
    lines += text + "\n";
  }
  program.folder().write("tests.csv", tests);
  train_classifier(program, {"data.test_path=tests.csv", "train.steps=20"}, "words");
  train_classifier(program, {"data.test_path=tests.csv", "train.steps=20", "data.tokenizer={kind: byte}"}, "bytes");
  const auto probabilities_of_yes = [&](const std::string& run) {
    std::vector<double> values;
    std::istringstream answers(program.run_with_input({"predict", "--run", run, "--json"}, lines).out);
    for (std::string line; std::getline(answers, line);)
      values.push_back(nlohmann::json::parse(line).at("probabilities").at("yes").get<double>());
    REQUIRE(values.size() == labels.size());
    return values;
  };
  const auto by_words = probabilities_of_yes("words"), by_bytes = probabilities_of_yes("bytes");
  double loss = 0, correct = 0;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const double yes = (by_words[i] + by_bytes[i]) / 2;
    const double right = labels[i] == "yes" ? yes : 1 - yes;
    loss -= std::log(right) / static_cast<double>(labels.size());
    correct += right > 0.5;
  }
  const auto together = nlohmann::json::parse(
      program.succeed({"evaluate", "--run", "words", "--with", "bytes", "--split", "test", "--json"}));
  std::int64_t texts = 0;  // in the tables that only this prints
  for (const auto& row : together["confusion"])
    for (const auto& count : row) texts += count.get<std::int64_t>();
  CHECK(texts == together["texts"]);
  const auto single =
      nlohmann::json::parse(program.succeed({"evaluate", "--run", "words", "--split", "test", "--json"}));
  CHECK((single["confusion"].size() == 2 && single["classes"].size() == 2));
  CHECK(together.at("loss").get<double>() == Approx(loss).epsilon(1e-4));
  CHECK(together.at("accuracy").get<double>() == Approx(correct / static_cast<double>(labels.size())));
  CHECK(together.at("texts") == labels.size());
  CHECK(together.at("members").size() == 2);

  std::string renamed = tests;
  for (auto& c : renamed)
    if (c == 'j') c = 'k';
  program.folder().write("renamed.csv", renamed);
  train_classifier(program, {"data.test_path=renamed.csv", "train.steps=2"}, "renamed");
  const auto same_labels = program.run({"evaluate", "--run", "words", "--with", "renamed", "--split", "test"});
  CHECK(same_labels.code == 2);
  CHECK_THAT(same_labels.err, ContainsSubstring("renamed: its test split has other texts than the first run's"));

  const auto other_texts = program.run({"evaluate", "--run", "words", "--with", "other"});
  CHECK(other_texts.code == 2);
  CHECK_THAT(other_texts.err, ContainsSubstring("--run other: no such run"));
  train_classifier(program, {"data.validation_fraction=0.2", "train.steps=2"}, "split");
  const auto split = program.run({"evaluate", "--run", "words", "--with", "split"});
  CHECK(split.code == 2);
  CHECK_THAT(split.err, ContainsSubstring("split: its validation split has other texts than the first run's"));
}

TEST_CASE("what a run labels trains another, which is compared with it", "[cli]") {
  const Program program;
  train_classifier(program, {"train.steps=20"}, "teacher");
  program.folder().write("texts.txt", "w1 marker\nw2 other\nw3 marker\n");
  std::string labelled;
  std::istringstream answers(program.succeed({"predict", "--run", "teacher", "texts.txt", "--json"})),
      texts("w1 marker\nw2 other\nw3 marker\n");
  for (std::string answer, text; std::getline(answers, answer) && std::getline(texts, text);)
    labelled += nlohmann::json{{"text", text}, {"label", nlohmann::json::parse(answer).at("label")}}.dump() + "\n";
  program.folder().write("labels-1337.jsonl", labelled);
  train_classifier(program, {"train.steps=20", "data.extra_path=labels-{seed}.jsonl"}, "student");
  const auto compared = program.run({"compare", "teacher", "student"});
  CHECK(compared.code == 0);
  CHECK(compared.err.empty());
  CHECK_THAT(compared.out, ContainsSubstring("data.extra_path"));

  const auto missing = program.run({"train", "--config", "text_classifier.yaml", "--set", "data.path=table.csv",
                                    "data.extra_path=labels-{seed}.jsonl", "train.seed=2"});
  CHECK(missing.code == 3);
  CHECK_THAT(missing.err, ContainsSubstring("labels-2.jsonl: no such file"));
}

TEST_CASE("processes share predictions, which are those of one, and only the first reads", "[cli][processes]") {
  const Program program;
  train_classifier(program);
  std::string lines;
  for (int i = 0; i < 300; ++i)
    lines += i % 50 == 7 ? "\n" : "w" + std::to_string(i % 9) + (i % 3 ? " marker\n" : " w1\n");
  program.folder().write("texts.txt", lines);
  const Arguments from_file = {"predict", "--run", "run", "texts.txt", "--json", "--batch-size", "7"};
  const Arguments from_input = {"predict", "--run", "run", "--json", "--batch-size", "7"};
  const auto alone = program.run(from_file);
  CHECK(alone.code == 3);  // blank lines
  CHECK_THAT(alone.err, ContainsSubstring("texts.txt: 294 texts, "));
  REQUIRE(std::count(alone.out.begin(), alone.out.end(), '\n') == 300);
  for (const std::string processes : {"2", "3"}) {
    auto words = from_file;
    words.insert(words.end(), {"--processes", processes});
    const auto shared = program.run(words);
    CHECK(shared.out == alone.out);
    CHECK(without_speed(shared.err) == without_speed(alone.err));
    CHECK(shared.code == 3);
    words = from_input;
    words.insert(words.end(), {"--processes", processes});
    CHECK(program.run_with_input(words, lines).out == alone.out);
  }
  const auto none = program.run({"predict", "--run", "run", "absent.txt", "--processes", "3"});
  CHECK(none.code == 3);
  CHECK_THAT(none.err, ContainsSubstring("error: 'absent.txt': No such file"));
}

TEST_CASE("predict and evaluate compute in the run's precision: the same loss and accuracy", "[cli]") {
  const Program program;
  std::string table = "text,label\n";
  for (int i = 0; i < 24; ++i) table += "w" + std::to_string(i % 9) + (i % 2 == 0 ? " marker,yes\n" : " other,no\n");
  program.folder().write("tests.csv", table);
  train_classifier(program, {"data.test_path=tests.csv", "train.steps=3", "train.precision=bf16"});
  const auto metrics =
      nlohmann::json::parse(program.succeed({"evaluate", "--run", "run", "--split", "test", "--json"}));
  std::istringstream answers(program.succeed({"predict", "--run", "run", "tests.csv", "--json"}));
  double loss = 0, correct = 0;
  int texts = 0;
  for (std::string line; std::getline(answers, line); ++texts) {
    const auto answer = nlohmann::json::parse(line);
    const std::string label = texts % 2 == 0 ? "yes" : "no";
    loss -= std::log(answer.at("probabilities").at(label).get<double>()) / 24;
    correct += answer.at("label") == label;
  }
  CHECK(texts == 24);
  CHECK(correct / 24 == metrics.at("accuracy").get<double>());
  CHECK(loss == Approx(metrics.at("loss").get<double>()).epsilon(1e-6));
}

TEST_CASE("predict reads what train reads, and says how", "[cli]") {
  const Program program;
  train_classifier(program);
  const auto labels_of = [](const std::string& out) {
    std::string labels;
    std::istringstream lines(out);
    for (std::string line; std::getline(lines, line);) labels += line.substr(0, line.find('\t')) + " ";
    return labels;
  };
  const auto predict = [&](const std::string& name, const std::string& content, const Arguments& more = {}) {
    program.folder().write(name, content);
    Arguments arguments = {"predict", "--run", "run", name};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return program.run(arguments);
  };
  const auto table = predict("new.csv", "id,text\n1,\"w1,\nmarker\"\n2,w2 other\n");
  CHECK(labels_of(table.out) == "yes no ");
  CHECK_THAT(table.err, ContainsSubstring("new.csv: csv with a header; the texts are column 'text'"));
  const auto labelled = predict("old.tsv", "label\ttext\nno\tw1 marker\n");
  CHECK(labels_of(labelled.out) == "yes ");
  const auto bare = predict("bare.tsv", "w1 marker\nw2 other\n", {"--header", "absent"});
  CHECK(labels_of(bare.out) == "yes no ");
  CHECK_THAT(bare.err, ContainsSubstring("bare.tsv: tsv without a header; the texts are column 1"));
  const auto lines = predict("new.jsonl", "{\"text\": \"w1 marker\"}\n[]\n{\"text\": \"w2 other\"}\n");
  CHECK(lines.code == 3);
  CHECK(labels_of(lines.out) == "yes  no ");
  CHECK_THAT(lines.err, ContainsSubstring("JSON lines; the texts are member 'text'") &&
                            ContainsSubstring("new.jsonl:2: no prediction: array, not an object"));
  const auto plain = predict("new.txt", "w2 other\nw1 marker\n");
  CHECK(labels_of(plain.out) == "no yes ");
  CHECK_THAT(plain.err, ContainsSubstring("new.txt: plain lines, a text on every line"));
  CHECK(labels_of(predict("table.dat", "id,text\n1,w1 marker\n", {"--format", "csv"}).out) == "yes ");
  const auto no_column = predict("wrong.csv", "id,body,label\n1,w1 marker,yes\n");
  CHECK(no_column.code == 3);
  CHECK_THAT(no_column.err,
             ContainsSubstring("wrong.csv:1: no column 'text' in the first row, which has 'id', 'body', 'label'"));
  CHECK(predict("new.txt", "x\n", {"--format", "xml"}).code == 2);
}

TEST_CASE("predict labels no other column than that of the training", "[cli]") {
  const Program program;
  train_classifier(program);
  const auto predict = [&](const std::string& name, const std::string& content, const Arguments& more = {}) {
    program.folder().write(name, content);
    Arguments arguments = {"predict", "--run", "run", name};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return program.run(arguments);
  };
  const auto labels_of = [](const Result& result) {
    std::string labels;
    std::istringstream lines(result.out);
    for (std::string line; std::getline(lines, line);) labels += line.substr(0, line.find('\t')) + " ";
    return labels;
  };
  const std::string csv = "id,review\n1,w1 marker\n2,w2 other\n", tsv = "id\treview\n1\tw1 marker\n2\tw2 other\n";
  const std::string bare = "w1 marker,x\nw2 other,y\n", jsonl = "{\"id\": 1, \"review\": \"w1 marker\"}\n";
  for (const auto& [name, content, columns] :
       {std::tuple("other.csv", csv, "'id', 'review'"), std::tuple("other.tsv", tsv, "'id', 'review'"),
        std::tuple("bare.csv", bare, "'w1 marker', 'x'"),
        std::tuple("Text.csv", std::string("Text\nw1\n"), "'Text'")}) {
    const auto refused = predict(name, content);
    CHECK(refused.code == 3);
    CHECK(refused.out.empty());
    CHECK_THAT(refused.err,
               ContainsSubstring(std::string(name) + ":1: no column 'text' in the first row, which has " + columns) &&
                   ContainsSubstring("--column names another one, and --header absent reads a table"));
  }
  const auto member = predict("other.jsonl", jsonl);
  CHECK(member.code == 3);
  CHECK_THAT(member.err, ContainsSubstring("no object has a member 'text'; the first, on line 1, has 'id', 'review'"));

  CHECK(labels_of(predict("other.csv", csv, {"--column", "review"})) == "yes no ");
  CHECK(labels_of(predict("other.csv", csv, {"--column", "2"})) == "yes no ");  // a header, as the training had
  CHECK(labels_of(predict("other.jsonl", jsonl, {"--column", "review"})) == "yes ");
  CHECK(labels_of(predict("bare.csv", bare, {"--header", "absent"})) == "yes no ");
  CHECK(labels_of(predict("bare.csv", "1,w1 marker\n2,w2 other\n", {"--header", "absent", "--column", "2"})) ==
        "yes no ");
  const auto empty = predict("empty.csv", "");
  CHECK(empty.code == 3);
  CHECK_THAT(empty.err,
             ContainsSubstring("empty.csv: has no row; the first one must name the columns, 'text' among them"));
  for (const auto& [more, why] :
       {std::pair(Arguments{"--column", "revew"},
                  "no column 'revew' in the first row, which has 'id', 'review'; --column names another one, and "
                  "--header absent reads a table without a header; did you mean 'review'?"),
        std::pair(Arguments{"--column", "9"}, "no column '9' in the first row, which has 'id', 'review'; --column"),
        std::pair(Arguments{"--column", "text", "--header", "absent"}, "--column 'text': without a header"),
        std::pair(Arguments{"--column", "0"}, "--column counts columns from 1, not 0"),
        std::pair(Arguments{"--column", ""}, "--column: is empty"),
        std::pair(Arguments{"--header", "maybe"}, "--header maybe: expected auto, present or absent")}) {
    const auto refused = predict("other.csv", csv, more);
    CHECK(refused.code == (more[1] == "revew" || more[1] == "9" ? 3 : 2));
    CHECK_THAT(refused.err, ContainsSubstring(why));
  }
  CHECK_THAT(predict("lines.txt", "w1\n", {"--column", "text"}).err, ContainsSubstring("is read as plain lines"));
  CHECK_THAT(predict("other.jsonl", jsonl, {"--header", "absent"}).err, ContainsSubstring("which have no header"));

  // A run whose training table had no header takes such tables, and still finds a name.
  std::string table;
  for (int i = 0; i < 300; ++i)
    table += "w" + std::to_string(i * 7 % 31) + (i % 2 == 1 ? " marker,yes\n" : " other,no\n");
  program.folder().write("bare_training.csv", table);
  train_classifier(program, {"data.path=bare_training.csv"}, "run2");
  const auto by_second = [&](const std::string& name, const std::string& content, const Arguments& more = {}) {
    auto arguments = Arguments{"--run", "run2"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    program.folder().write(name, content);
    Arguments words = {"predict", name};
    words.insert(words.end(), arguments.begin(), arguments.end());
    return program.run(words);
  };
  const auto headless = by_second("bare.csv", bare);
  CHECK(labels_of(headless) == "yes no ");
  CHECK_THAT(headless.err, ContainsSubstring("bare.csv: csv without a header; the texts are column 1"));
  CHECK(labels_of(by_second("named.csv", "id,text\n1,w1 marker\n")) == "yes ");
  CHECK(by_second("other.csv", csv, {"--column", "text"}).code == 3);
  CHECK(by_second("other.csv", csv, {"--header", "present"}).code == 3);
}

TEST_CASE("a byte order mark is no part of what is asked", "[cli]") {
  const Program program;
  const std::string mark = "\xEF\xBB\xBF";
  program.folder().write("text.txt", mark + small_text());
  program.succeed({"train", "--config", "small.yaml", "--out", "run"});
  CHECK(read_text(program.folder() / "run/checkpoints/last/tokenizer.json").find("\uFEFF") == std::string::npos);
  const Arguments sample = {"sample", "--run", "run", "--tokens", "5", "--seed", "3"};
  const auto with = [](Arguments first, const Arguments& more) {
    first.insert(first.end(), more.begin(), more.end());
    return first;
  };
  const auto expected = program.succeed(with(sample, {"--prompt", "to be"}));
  program.folder().write("prompt.txt", mark + "to be");
  CHECK(program.succeed(with(sample, {"--prompt", mark + "to be"})) == expected);
  CHECK(program.succeed(with(sample, {"--prompt-file", "prompt.txt"})) == expected);
  CHECK(program.run_with_input(with(sample, {"--interactive"}), mark + "to be\n").out == expected);
  const Arguments inspect = {"inspect", "--run", "run", "--no-pictures", "--no-data", "--json"};
  const auto inspected = program.succeed(with(inspect, {"--text", "to be"}));
  CHECK(program.succeed(with(inspect, {"--text", mark + "to be"})) == inspected);
  CHECK(program.succeed(with(inspect, {"--file", "prompt.txt"})) == inspected);
  const auto tokens = [&](const std::string& text) {
    return nlohmann::json::parse(
               program.succeed({"data", "tokenizer", "--config", "small.yaml", "--encode", text, "--json"}))
        .at("encoded");
  };
  CHECK(tokens(mark + "to be") == tokens("to be"));
  CHECK(program.succeed({"report", "run", "--prompt", mark + "to be", "--tokens", "5", "--json"}).find("cannot") ==
        std::string::npos);
  program.folder().write("marked.yaml", mark + read_text(program.folder() / "small.yaml"));
  program.succeed({"config", "check", "marked.yaml"});
  train_classifier(program, {}, "classifier");
  program.folder().write("new.csv", mark + "text\nw1 marker\n");
  CHECK(program.succeed({"predict", "--run", "classifier", "new.csv"}).starts_with("yes\t"));
}

TEST_CASE("sample says how much of a long prompt the model sees", "[cli]") {
  const Program program;
  program.succeed({"train", "--config", "small.yaml", "--out", "run"});
  const std::string fits = "to be, or not to", longer = "a" + fits;  // of 16 and 17 characters, the context is 16
  const auto sample = [&](const std::string& prompt, const Arguments& more = {}) {
    Arguments arguments = {"sample", "--run", "run", "--prompt", prompt, "--tokens", "1", "--seed", "3"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return program.run(arguments);
  };
  const auto notice = "the prompt has 17 tokens; the model sees the last 16 of them (model.context)";
  for (const Arguments& more : {Arguments{}, {"--window", "slide"}, {"--no-cache"}}) {
    const auto whole = sample(fits, more), cut = sample(longer, more);
    CHECK_THAT(whole.err, !ContainsSubstring("the model sees"));
    CHECK_THAT(cut.err, ContainsSubstring(notice));
    CHECK(cut.out == "a" + whole.out);
  }
  CHECK(nlohmann::json::parse(sample(longer, {"--json"}).out).at("cut") == true);
  CHECK(nlohmann::json::parse(sample(fits, {"--json"}).out).at("cut") == false);
  program.succeed(
      {"train", "--config", "small.yaml", "--set", "model={kind: gru, width: 8, context: 16}", "--out", "gru"});
  CHECK_THAT(program.run({"sample", "--run", "gru", "--prompt", longer, "--tokens", "1"}).err,
             !ContainsSubstring("the model sees"));
}

TEST_CASE("predict answers a slow writer line by line, and a signal ends it cleanly", "[cli]") {
  const Program program;
  train_classifier(program);
  const auto fifo = program.folder() / "fifo";
  REQUIRE(mkfifo(fifo.c_str(), 0600) == 0);
  const int writer = open(fifo.c_str(), O_RDWR);
  const auto pid = program.start({"predict", "--run", "run"}, fifo);
  const auto answers = [&] { return read_text(program.folder() / "out"); };
  const auto wait_for = [&](const std::string& text) {
    for (int i = 0; i < 600 && answers().find(text) == std::string::npos; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    CHECK_THAT(answers(), ContainsSubstring(text));
  };
  REQUIRE(write(writer, "w1 marker\n", 10) == 10);
  wait_for("yes\t");
  REQUIRE(write(writer, "w1 other\n", 9) == 9);
  wait_for("no\t");
  kill(pid, SIGINT);
  CHECK(program.wait(pid).code == 130);
  close(writer);
}
