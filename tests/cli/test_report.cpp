// What `report` writes and what it refuses. tests/python/report_page.py looks at the page in a browser.

#include "cli/program.h"

namespace {

nlohmann::json data_of(const std::string& page) {
  const std::string mark = "id=\"report-data\">";
  const auto start = page.find(mark) + mark.size();
  return nlohmann::json::parse(page.substr(start, page.find("</script>", start) - start));
}

}  // namespace

TEST_CASE("a report holds curves, texts and heads of its runs, and figures beside it", "[cli]") {
  const Program program;
  for (const char* seed : {"1", "2"})
    program.succeed({"train", "--config", "small.yaml", "--set", std::string("train.seed=") + seed, "--out",
                     std::string("runs/") + seed});
  program.succeed({"train", "--config", "small.yaml", "--set", "model.mixer=quadratic", "--set", "train.seed=1",
                   "--out", "runs/quadratic"});
  const auto told =
      nlohmann::json::parse(program.succeed({"report", "runs", "-o", "page.html", "--prompt", "to be", "--tokens", "7",
                                             "--text", "or not", "--figures", "figures", "--json"}));
  const auto page = read_text(program.folder() / "page.html");
  CHECK((told["runs"] == 3 && told["groups"] == 2 && told["bytes"] == page.size()));
  const auto data = data_of(page);
  CHECK(data["runs"].size() == 3);
  CHECK(data["comparison"]["groups"].size() == 2);
  CHECK(data["curves"]["series"]["validation loss"]["groups"][0]["low"].size() == 2);
  REQUIRE(data["texts"]["samples"].size() == 3);
  const auto& sample = data["texts"]["samples"][0];
  const auto alone = nlohmann::json::parse(
      program.succeed({"sample", "--run", "runs/1", "--prompt", "to be", "--tokens", "7", "--seed", "1337", "--json"}));
  CHECK(sample["text"] == alone["text"]);
  REQUIRE(data["inspected"].size() == 2);
  CHECK(data["inspected"][0]["tokens"].size() == 6);
  CHECK(data["inspected"][0]["layers"][0]["heads"][1]["attention"]["layout"] == "lower");
  CHECK(std::filesystem::exists(program.folder() / "figures/curves_both.svg"));
  CHECK(told["figures"].get<int>() > 5);
}

TEST_CASE("a comparison's metrics as pictures", "[cli]") {
  const Program program;
  for (const char* seed : {"1", "2"})
    for (const char* mixer : {"metric", "quadratic"})
      program.succeed({"train", "--config", "small.yaml", "--set", std::string("model.mixer=") + mixer, "--set",
                       std::string("train.seed=") + seed, "--out", std::string("runs/") + mixer + seed});
  program.succeed({"compare", "runs", "--metrics", "val_loss", "--figures", "figures"});
  const auto values = read_text(program.folder() / "figures/val_loss.svg");
  CHECK_THAT(values, ContainsSubstring("metric") && ContainsSubstring("quadratic"));
  CHECK(std::filesystem::exists(program.folder() / "figures/val_loss_differences.svg"));
  program.folder().write("file", "");
  const auto refused = program.run({"compare", "runs", "--figures", "file"});
  CHECK(refused.code == 1);
  CHECK(std::count(refused.err.begin(), refused.err.end(), '\n') == 1);
}

TEST_CASE("a report without texts and heads reads no checkpoint", "[cli]") {
  const Program program;
  program.succeed({"train", "--config", "small.yaml", "--out", "run"});
  std::filesystem::remove_all(program.folder() / "run/checkpoints");
  const auto bare = nlohmann::json::parse(program.succeed({"report", "run", "--no-samples", "--no-heads", "--json"}));
  CHECK(bare["problems"].empty());
  CHECK(data_of(read_text(program.folder() / "report.html"))["texts"]["samples"].empty());
  const auto whole = nlohmann::json::parse(program.succeed({"report", "run", "--json"}));
  REQUIRE(whole["problems"].size() == 1);
  CHECK_THAT(whole["problems"][0].get<std::string>(), ContainsSubstring("run: no text and no heads: "));
}

TEST_CASE("what is no run is refused, and a run that is not finished is named", "[cli]") {
  const Program program;
  CHECK(program.run({"report"}).code == 2);
  CHECK(program.run({"report", "nothing"}).code == 2);
  program.folder().write("results.csv", "");
  CHECK(program.run({"report", "results.csv"}).code != 0);
  program.succeed({"train", "--config", "small.yaml", "--out", "run"});
  CHECK(program.run({"report", "run", "--margin", "0"}).code == 2);
  CHECK(program.run({"report", "run", "--prompt", "a", "--no-samples"}).code == 2);
  CHECK(program.run({"report", "run", "--reference", "other"}).code == 2);
  std::filesystem::remove(program.folder() / "run/summary.json");
  const auto unfinished = program.run({"report", "run"});
  CHECK(unfinished.code == 0);
  CHECK_THAT(unfinished.err, ContainsSubstring("run: left out: unfinished"));
  const auto data = data_of(read_text(program.folder() / "report.html"));
  CHECK(data["comparison"].is_null());
  CHECK_THAT(data["runs"][0]["state"].get<std::string>(), ContainsSubstring("unfinished"));
}

TEST_CASE("attention is shown of the prompt, where there is one", "[cli]") {
  const Program program;
  program.succeed({"train", "--config", "small.yaml", "--out", "run"});
  const auto tokens_of = [&](Arguments more) {
    more.insert(more.begin(), {"report", "run"});
    program.succeed(more);
    const auto data = data_of(read_text(program.folder() / "report.html"));
    std::string tokens;
    for (const auto& token : data["inspected"][0]["tokens"]) tokens += token.get<std::string>();
    return tokens;
  };
  const auto shown = tokens_of({"--prompt", "not to be"});
  CHECK(shown.starts_with("not to be"));
  CHECK(shown.size() >= 16);  // model.context: it goes on as the run writes
  CHECK_FALSE(tokens_of({}).starts_with("not to be"));
  CHECK(tokens_of({"--prompt", "~"}) == tokens_of({}));  // which the run cannot read
}

TEST_CASE("classifiers and masked language models are shown with a text of their data", "[cli]") {
  const Program program;
  std::string table = "text,label\n";
  for (int i = 0; i < 60; ++i) {
    const auto number = std::to_string(i);
    table += "\"engine " + number + ", failure of pump " + number + "\"," + (i % 2 == 0 ? "pump\n" : "motor\n");
  }
  program.folder().write("table.csv", table);
  program.succeed({"train", "--config", "text_classifier.yaml", "--set", "data.path=table.csv", "--set",
                   "train.steps=2", "--set", "model.width=16", "--set", "model.heads=2", "--out", "runs/classifier"});
  program.succeed({"train", "--config", "small.yaml", "--set", "task=masked_language_model", "--out", "runs/masked"});
  const auto report = [&] {
    program.succeed({"report", "runs"});
    return data_of(read_text(program.folder() / "report.html"));
  };
  const auto data = report();
  CHECK_THAT(data["texts"]["samples"][0]["prompt"].get<std::string>(), ContainsSubstring("failure of pump"));
  REQUIRE(data["inspected"].size() == 2);
  CHECK(data["inspected"][0]["tokens"][0] == "engine");
  CHECK(data["inspected"][1]["tokens"].size() == 16);
  std::filesystem::remove(program.folder() / "table.csv");
  const auto without = report();
  CHECK_THAT(without["texts"]["samples"][0]["prompt"].get<std::string>(), ContainsSubstring("film"));
  CHECK_THAT(without["problems"].dump(), ContainsSubstring("a fixed prompt in place of a text of its data"));
}

TEST_CASE("an answer that a run cannot give is said on the page", "[cli]") {
  const Program program;
  program.succeed({"train", "--config", "small.yaml", "--out", "run"});
  program.succeed({"report", "run", "--prompt", "~", "--text", "to be"});
  const auto data = data_of(read_text(program.folder() / "report.html"));
  CHECK_THAT(data["texts"]["samples"][0]["error"].get<std::string>(), ContainsSubstring("no answer: "));
}
