// data stats: what a config's data are like.

#include "cli/program.h"

namespace {

// 20 reviews in Amazon's format: 12 with four or five stars, 6 with one or two, 2 between; then a broken line.
std::string reviews() {
  std::string text;
  for (int i = 0; i < 20; ++i) {
    const auto* stars = i < 12 ? (i % 2 == 0 ? "5.0" : "4.0") : i < 18 ? "1.0" : "3.0";
    text += R"({"reviewerID": "A1", "reviewText": "word)" + std::to_string(i) + R"( came, late", "overall": )" + stars +
            "}\n";
  }
  return text + "{\"reviewText\": \n";
}

const Arguments amazon = {"data",     "stats",
                          "--config", "reviews_amazon.yaml",
                          "--set",    "data.path=reviews.json",
                          "--set",    "data.validation_path=reviews.json"};

}  // namespace

TEST_CASE("data stats counts reviews as the shipped config reads them", "[cli]") {
  const Program program;
  program.folder().write("reviews.json", reviews());
  auto arguments = amazon;
  const auto refused = program.run(arguments);
  CHECK(refused.code == 3);
  CHECK_THAT(refused.err, ContainsSubstring("reviews.json:21: not JSON"));
  arguments.insert(arguments.end(), {"--set", "data.malformed_limit=0.1"});
  const auto table = program.run(arguments);
  CHECK(table.code == 0);
  CHECK_THAT(table.err, ContainsSubstring("1 of 21 rows (4.8%) are malformed and left out; the first is line 21"));
  CHECK_THAT(table.err, ContainsSubstring("2 of 21 ratings lie between"));
  CHECK_THAT(table.out, ContainsSubstring("12  66.67%"));
  CHECK_THAT(table.out, ContainsSubstring("1 malformed rows, 2 ratings left out"));
  arguments.emplace_back("--json");
  const auto json = nlohmann::json::parse(program.succeed(arguments));
  const auto& train = json.at("splits").at("train");
  CHECK(train.at("texts") == 18);
  CHECK(train.at("classes") == nlohmann::json{{"negative", 6}, {"positive", 12}});
  CHECK(train.at("tokens") == 72);          // word, came, the comma, late
  CHECK(train.at("unknown_tokens") == 18);  // every first word stands once
  CHECK(train.at("tokens_per_text").at("median") == 4);
  CHECK(json.at("texts_in_two_splits").at("validation_in_train") == 18);
  CHECK(json.at("padding").at("unsorted") == 0);
  CHECK(json.at("sources").at("train").at("left_out") == 2);
}

TEST_CASE("data stats counts the text of a language model, and refuses a sorter", "[cli]") {
  const Program program;
  const auto json = nlohmann::json::parse(program.succeed({"data", "stats", "--config", "small.yaml", "--json"}));
  const auto text = small_text();
  const auto train = json.at("splits").at("train").at("characters").get<std::size_t>();
  const auto validation = json.at("splits").at("validation").at("characters").get<std::size_t>();
  CHECK(train + validation == text.size());
  CHECK(train == text.size() * 9 / 10);
  CHECK_THAT(program.succeed({"data", "stats", "small.yaml"}), ContainsSubstring("unknown tokens"));
  const auto sorter = program.run({"data", "stats", "--config", "sorter_metric.yaml"});
  CHECK(sorter.code == 2);
  CHECK_THAT(sorter.err, ContainsSubstring("task sort generates its lists"));
  CHECK(program.run({"data", "stats"}).code == 2);
}
