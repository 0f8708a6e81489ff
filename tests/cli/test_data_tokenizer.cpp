// data tokenizer, and language models of words and subwords from training to sampling.

#include <stdlib.h>

#include <cmath>

#include "cli/program.h"
#include "support/own_cache.h"

namespace {

const Arguments unigram = {"--set", "data.tokenizer.kind=unigram",   "--set", "data.tokenizer.vocabulary=300",
                           "--set", "data.tokenizer.whitespace=kept"};
const Arguments words = {"--set", "data.tokenizer.kind=word",      "--set", "data.tokenizer.min_count=1",
                         "--set", "data.tokenizer.whitespace=kept"};

Arguments joined(Arguments first, const Arguments& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

// The program, with a cache in its folder.
struct CachingProgram : Program {
  CachingProgram() { ::setenv("XDG_CACHE_HOME", (folder() / "cache").c_str(), 1); }
  OwnCache restored;  // what the constructor sets
};

}  // namespace

TEST_CASE("data tokenizer learns once, reports, and writes what a checkpoint holds", "[cli]") {
  const CachingProgram program;
  const auto command = joined({"data", "tokenizer", "--config", "small.yaml", "--json"}, unigram);
  const auto first = program.run(joined(command, {"--out", "tokenizer.json", "--encode", "to  be\n"}));
  CHECK(first.code == 0);
  CHECK_THAT(first.err, ContainsSubstring("learning a unigram tokenizer"));
  const auto json = nlohmann::json::parse(first.out);
  CHECK(json.at("kind") == "unigram");
  CHECK(json.at("vocabulary").get<int>() <= 300);
  const auto& train = json.at("splits").at("train");
  const auto text = small_text();
  CHECK(train.at("characters").get<std::size_t>() +
            json.at("splits").at("validation").at("characters").get<std::size_t>() ==
        text.size());
  CHECK(train.at("characters_per_token").get<double>() ==
        train.at("characters").get<double>() / train.at("tokens").get<double>());
  CHECK(train.at("unknown_share") == 0);
  std::string encoded;
  for (const auto& token : json.at("encoded")) encoded += token.at("text").get<std::string>();
  CHECK(encoded == "to  be\n");

  const auto second = program.run(command);
  CHECK(second.code == 0);
  CHECK(second.err.find("learning") == std::string::npos);
  program.succeed(joined({"train", "--config", "small.yaml", "--out", "run"}, unigram));
  CHECK(
      read_text(program.folder() / "run/checkpoints/last/tokenizer.json")
          .find(
              nlohmann::json::parse(read_text(program.folder() / "tokenizer.json")).at("sha256").get<std::string>()) !=
      std::string::npos);

  CHECK_THAT(program.succeed({"data", "tokenizer", "small.yaml"}),
             ContainsSubstring("character tokenizer, vocabulary"));
  CHECK(program.run({"data", "tokenizer", "--config", "small.yaml", "--set", "task=sort"}).code == 2);
  CHECK(program.run(joined(command, {"--set", "data.tokenizer.vocabulary=100"})).code == 3);
}

TEST_CASE("language models of words and subwords train, evaluate, resume and write text", "[cli]") {
  const CachingProgram program;
  const auto& tokens = GENERATE_REF(unigram, words);
  program.succeed(joined({"train", "--config", "small.yaml", "--out", "run"}, tokens));
  const auto evaluation = nlohmann::json::parse(program.succeed({"evaluate", "--run", "run", "--json"}));
  const auto report =
      nlohmann::json::parse(program.succeed(joined({"data", "tokenizer", "--config", "small.yaml", "--json"}, tokens)));
  const auto& validation = report.at("splits").at("validation");
  // Bits of all tokens over all characters, whatever a token is.
  const double bits = evaluation.at("loss").get<double>() / std::log(2.0) * validation.at("tokens").get<double>() /
                      validation.at("characters").get<double>();
  CHECK(std::abs(evaluation.at("bits_per_character").get<double>() - bits) < 1e-9);
  CHECK(evaluation.at("unknown_share") == 0);
  const auto sample = [&] {
    return program.succeed({"sample", "--run", "run", "--prompt", "to be,  or\n", "--tokens", "30"});
  };
  const auto text = sample();
  CHECK(text.starts_with("to be,  or\n"));
  CHECK(sample() == text);
  program.succeed(
      joined({"train", "--config", "small.yaml", "--out", "run", "--resume", "--set", "train.steps=6"}, tokens));
  CHECK(program.run({"sample", "--run", "run", "--tokens", "3"}).code == 0);
}
