// data stats, data tokenizer, and runs whose data have moved (--set data.path=NEW), recognised by their SHA-256.

#include "cli/program.h"

namespace {

// 20 reviews in Amazon's format: 12 with four or five stars, 6 with one and 2 with three; then a broken line.
std::string reviews() {
  std::string text;
  for (int i = 0; i < 20; ++i) {
    const auto* stars = i < 12 ? (i % 2 == 0 ? "5.0" : "4.0") : i < 18 ? "1.0" : "3.0";
    text += R"({"reviewerID": "A1", "reviewText": "word)" + std::to_string(i) + R"( came, late", "overall": )" + stars +
            "}\n";
  }
  return text + "{\"reviewText\": \n";
}

const Arguments unigram =
    set({"data.tokenizer.kind=unigram", "data.tokenizer.vocabulary=300", "data.tokenizer.whitespace=kept"});
const Arguments words =
    set({"data.tokenizer.kind=word", "data.tokenizer.min_count=1", "data.tokenizer.whitespace=kept"});

// The program, with a cache of its own.
struct CachingProgram : Program {
  OwnCache cache;
};

void move(const Program& program, const std::string& from, const std::string& to) {
  fs::create_directories(fs::path(program.at(to)).parent_path());
  fs::rename(program.at(from), program.at(to));
}

std::string numbered(const std::string& words, int count) {
  std::string lines;
  for (int i = 0; i < count; ++i) lines += words + " " + std::to_string(i) + "\n";
  return lines;
}

}  // namespace

TEST_CASE("data stats counts reviews as reviews_amazon.yaml reads them", "[cli]") {
  const Program program;
  program.folder().write("reviews.json", reviews());
  const auto stats = joined("data stats --config reviews_amazon.yaml",
                            set({"data.path=reviews.json", "data.validation_path=reviews.json"}));
  program.refuse(stats, 3, {"reviews.json:21: "});
  const auto tolerant = joined(stats, "--set data.malformed_limit=0.1");
  const auto table = program.succeed(tolerant);
  CHECK_THAT(program.read("err"), Mentions("1 of 21 rows") && Mentions("reviews.json:21: ") && Mentions("2 of 21"));
  CHECK_THAT(table, ContainsSubstring("12  66.67%") && Mentions("1 malformed|2 ratings"));
  const auto json = program.json(tolerant);
  const auto& train = json.at("splits").at("train");
  CHECK(train.at("texts") == 18);
  CHECK(train.at("classes") == Json{{"negative", 6}, {"positive", 12}});
  CHECK(json.at("sources").at("train").at("left_out") == 2);
}

TEST_CASE("data stats describes the text of a language model, and refuses a sorter", "[cli]") {
  const Program program;
  CHECK(program.json("data stats --config small.yaml").at("splits").at("train").at("characters") ==
        small_text().size() * 9 / 10);
  CHECK_THAT(program.succeed("data stats small.yaml"), ContainsSubstring("unknown tokens"));
  program.refuse("data stats --config sorter_metric.yaml", 2, {"task sort"});
  program.refuse("data stats", 2);
}

TEST_CASE("data tokenizer learns once, reports statistics, and writes the tokenizer of a checkpoint", "[cli]") {
  const CachingProgram program;
  const auto command = joined("data tokenizer --config small.yaml", unigram);
  const auto json = program.json(command, {"--out", "tokenizer.json", "--encode", "to  be\n"});
  CHECK_THAT(program.read("err"), ContainsSubstring("learning a unigram tokenizer"));
  CHECK(json.at("kind") == "unigram");
  CHECK(json.at("vocabulary") <= 300);
  const auto& train = json.at("splits").at("train");
  CHECK(train.at("characters").get<std::size_t>() +
            json.at("splits").at("validation").at("characters").get<std::size_t>() ==
        small_text().size());
  CHECK(train.at("characters_per_token").get<double>() ==
        train.at("characters").get<double>() / train.at("tokens").get<double>());
  CHECK(train.at("unknown_share") == 0);
  std::string encoded;
  for (const auto& token : json.at("encoded")) encoded += token.at("text").get<std::string>();
  CHECK(encoded == "to  be\n");

  program.succeed(command);
  CHECK(program.read("err").find("learning") == std::string::npos);
  program.succeed("train --config small.yaml --out run", unigram);
  CHECK_THAT(program.read("run/checkpoints/last/tokenizer.json"),
             ContainsSubstring(program.read_json("tokenizer.json").at("sha256").get<std::string>()));
  CHECK_THAT(program.succeed("data tokenizer small.yaml"), ContainsSubstring("character tokenizer, vocabulary"));
  program.refuse("data tokenizer --config small.yaml --set task=sort", 2);
  program.refuse(joined(command, "--set data.tokenizer.vocabulary=100"), 3);
}

TEST_CASE("tokens in files replace the tokenizer of a config, also in a mixture and after initial weights", "[cli]") {
  const Program program;
  program.folder().write(
      "subword.yaml",
      "data: {tokenizer: {kind: bpe, vocabulary: 300}}\n"
      "model: {layers: 1, heads: 2, width: 16, context: 16}\n"
      "train: {steps: 2, batch_size: 2, eval_interval: 2, checkpoint_interval: 2, schedule: {warmup_steps: 0}}\n");
  program.succeed("data prepare text.txt --tokenizer byte --out tokens");
  const Arguments train = "train --config subword.yaml --out";
  program.succeed(train, "run --set data.path=tokens");
  program.succeed("evaluate --run run");
  program.succeed("train --resume run --set train.steps=4");
  program.succeed(train, "mixed --set 'data.mixture=[tokens=0.7, tokens=0.3]'");
  program.refuse(joined(train, "new --set data.path=tokens --set data.tokenizer=word"), 2,
                 {"data.tokenizer: has no effect on |leave it out"});
  program.train("bytes", {"data.tokenizer=byte"});
  program.succeed("train --config small.yaml --set train.init_from=bytes --set data.path=tokens --out tuned");
}

TEST_CASE("a language model of a table gives a warning", "[cli]") {
  const Program program;
  program.folder().write("text.csv", small_text());
  CHECK_THAT(program.train("run", {"data.path=text.csv", "train.steps=1"}),
             ContainsSubstring("warning: ") && ContainsSubstring("text.csv has the name of a table"));
  CHECK_THAT(program.train("other", {"train.steps=1"}), !ContainsSubstring("name of a table"));
}

TEST_CASE("language models of words and subwords train, evaluate, resume and write text", "[cli]") {
  const CachingProgram program;
  const auto& tokens = GENERATE_REF(unigram, words);
  const auto train = joined("train --config small.yaml --out run", tokens);
  program.succeed(train);
  const auto evaluation = program.json("evaluate --run run");
  CHECK(evaluation.at("unknown_share") == 0);
  const Arguments sample = {"sample", "--run", "run", "--prompt", "to be,  or\n", "--tokens", "30"};
  const auto text = program.succeed(sample);
  CHECK(text.starts_with("to be,  or\n"));
  CHECK(program.succeed(sample) == text);
  program.succeed(train, "--resume --set train.steps=6");
  program.succeed("sample --run run --tokens 3");
}

TEST_CASE("a run whose text has moved can be evaluated, inspected and resumed with the new path", "[moved]") {
  const Program program;
  program.train("run");
  const auto expected = program.json("evaluate --run run");
  CHECK_THAT(program.read("err"), !ContainsSubstring("data.path"));
  move(program, "text.txt", "new/renamed.txt");
  const Arguments resume = "train --config small.yaml --out run --resume --set train.steps=6";
  const std::vector<Arguments> commands = {"evaluate --run run", "inspect --run run", resume};
  for (const auto& command : commands)
    program.refuse_in_one_line(command, 3, {program.at("text.txt") + ": no such file", "--set data.path=..."});
  const auto mistyped = program.refuse("train --config small.yaml --set data.path=nowhere.txt", 3, {"nowhere.txt: "});
  CHECK_THAT(mistyped.err, !ContainsSubstring("--set data.path=..."));
  const Arguments moved = "--set data.path=new/renamed.txt";
  CHECK(program.json("evaluate --run run", moved) == expected);
  CHECK_THAT(program.read("err"), ContainsSubstring("data.path=" + program.at("new/renamed.txt") + ": ") &&
                                      ContainsSubstring("SHA-256") && !ContainsSubstring("warning"));
  program.succeed("inspect --run run --no-pictures", moved);
  program.succeed(resume, moved);
  CHECK_THAT(program.read("run/config.yaml"), ContainsSubstring(program.at("new/renamed.txt")));
  program.succeed("evaluate --run run");

  program.folder().write("other.txt", "quite other characters: 0123456789 ABCDEF\n" + small_text());
  const std::string digest = program.read_json("run/environment.json").at("data").at("sha256");
  for (const Arguments& command :
       {commands[0], commands[1], Arguments("train --config small.yaml --out run --resume --set train.steps=8")})
    program.refuse_in_one_line(joined(command, "--set data.path=other.txt"), 3, {"other.txt: ", "was " + digest});
  program.refuse("evaluate --run run --set data.validation_path=other.txt", 3, {"validation.sha256 is ", "missing"});
  program.refuse("evaluate --run run --set data.corpus=imdb", 2);
}

TEST_CASE("a folder that has moved is recognised, and a run without digests gives a warning", "[moved]") {
  const Program program;
  program.folder().write("books/a.txt", small_text());
  program.folder().write("books/b.txt", small_text());
  program.train("run", {"data.path=books"});
  move(program, "books", "library");
  const Arguments evaluate = "evaluate --run run --set data.path=library";
  program.succeed(evaluate);
  program.folder().write("library/b.txt", small_text() + "more\n");
  program.refuse(evaluate, 3, {"sha256 is "});
  auto environment = program.read_json("run/environment.json");
  environment.erase("data");
  program.folder().write("run/environment.json", environment.dump());
  program.succeed(evaluate);
  CHECK_THAT(program.read("err"), ContainsSubstring("warning: data.path=" + program.at("library") + ": "));
}

TEST_CASE("tables and pairs that have moved are recognised split by split", "[moved]") {
  const Program program;
  program.folder().write("train.csv", labelled_table(300));
  program.folder().write("test.csv", labelled_table(300));
  program.succeed(
      "train --config text_classifier.yaml --out run",
      set({"data.path=train.csv", "data.test_path=test.csv", "task={kind: classification, baselines: false}",
           "model={layers: 1, heads: 2, width: 16, context: 16}",
           "train={steps: 2, batch_size: 4, schedule: {warmup_steps: 0}}"}));
  move(program, "train.csv", "new/train.csv");
  move(program, "test.csv", "new/test.csv");
  const Arguments evaluate = "evaluate --run run --split test";
  const auto with_train = joined(evaluate, "--set data.path=new/train.csv"),
             with_both = joined(with_train, "--set data.test_path=new/test.csv");
  program.refuse(evaluate, 3, {"--set data.path=..."});
  program.refuse(with_train, 3, {"--set data.test_path=..."});
  program.succeed(with_both);
  program.folder().write("new/test.csv", labelled_table(300, "text,label\n", "evil"));
  program.refuse(with_both, 3, {"test.sha256 is ", " and was "});

  program.folder().write("a.de", numbered("ein Hund", 200));
  program.folder().write("a.en", numbered("a dog", 200));
  program.folder().write("pairs.yaml",
                         "task: sequence_to_sequence\n"
                         "data: {path: a.de, target_path: a.en, tokenizer: byte}\n"
                         "model: {kind: encoder_decoder, width: 16, heads: 2, layers: 1, context: 32}\n"
                         "train: {steps: 1, batch_size: 8, schedule: {warmup_steps: 0}}\n");
  program.succeed("train --config pairs.yaml --out pairs");
  move(program, "a.de", "b.de");
  move(program, "a.en", "b.en");
  const Arguments there = "evaluate --run pairs --set data.path=b.de --set data.target_path=b.en";
  program.succeed(there);
  CHECK_THAT(program.read("err"), !ContainsSubstring("warning"));
  program.folder().write("b.en", numbered("a dog", 201));
  program.refuse(there, 3, {"target_sha256 is "});
}
