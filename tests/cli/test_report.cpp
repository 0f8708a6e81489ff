// Output and errors of `report`, `compare` and `inspect`. tests/python/report_page.py tests the page in a browser.

#include "cli/program.h"
#include "support/http_request.h"

namespace {

const Arguments inspect = "inspect --run run --device cpu";

Json data_of(const std::string& page) {
  const std::string mark = "id=\"report-data\">";
  const auto start = page.find(mark) + mark.size();
  return Json::parse(page.substr(start, page.find("</script>", start) - start));
}

// The data of the page that `report` writes.
Json reported(const Program& program, const Arguments& arguments) {
  program.succeed("report", arguments);
  return data_of(program.read("report.html"));
}

}  // namespace

TEST_CASE("a report contains curves, texts and heads of its runs, and figures are written beside it", "[cli]") {
  const Program program;
  program.train("runs/1", {"train.seed=1"});
  program.train("runs/2", {"train.seed=2"});
  program.train("runs/quadratic", {"model.mixer=quadratic", "train.seed=1"});
  const auto told =
      program.json("report runs -o page.html --prompt 'to be' --tokens 7 --text 'or not' --figures figures");
  const auto page = program.read("page.html");
  CHECK((told["runs"] == 3 && told["groups"] == 2 && told["bytes"] == page.size()));
  const auto data = data_of(page);
  CHECK(data["runs"].size() == 3);
  CHECK(data["comparison"]["groups"].size() == 2);
  CHECK(data["runs"][0]["operations"] ==
        3 * program.read_json("runs/1/summary.json")["operations_per_token"].get<double>());
  const auto& curves = data["curves"];
  const auto& axis = curves["axes"][curves["series"]["train loss"]["runs"][0]["axis"].get<std::size_t>()];
  CHECK(axis["step"] == Json({4}));
  CHECK(axis["tokens"] == Json({4 * 2 * 16}));
  CHECK(curves["series"]["learning rate"]["runs"][0]["axis"] == curves["series"]["train loss"]["runs"][0]["axis"]);
  CHECK(data["curves"]["series"]["validation loss"]["groups"][0]["low"].size() == 2);
  REQUIRE(data["texts"]["samples"].size() == 3);
  CHECK(data["texts"]["samples"][0]["text"] ==
        program.json("sample --run runs/1 --prompt 'to be' --tokens 7 --seed 1337")["text"]);
  REQUIRE(data["inspected"].size() == 2);
  CHECK(data["inspected"][0]["tokens"].size() == 6);
  CHECK(data["inspected"][0]["layers"][0]["heads"][1]["attention"]["layout"] == "lower");
  CHECK(program.has("figures/curves_both.svg"));
  CHECK(told["figures"] > 5);
}

TEST_CASE("compare draws its measures as figures", "[cli]") {
  const Program program;
  for (const std::string seed : {"1", "2"})
    for (const std::string mixer : {"metric", "quadratic"})
      program.train("runs/" + mixer + seed, {"model.mixer=" + mixer, "train.seed=" + seed});
  program.succeed("compare runs --metrics val_loss --figures figures");
  CHECK_THAT(program.read("figures/val_loss.svg"), ContainsSubstring("metric") && ContainsSubstring("quadratic"));
  CHECK(program.has("figures/val_loss_differences.svg"));
  program.folder().write("file", "");
  CHECK(is_one_line(program.refuse("compare runs --figures file", 1).err));
}

TEST_CASE("report refuses a folder that is no run, and shows the existing parts of a run without checkpoints or an end",
          "[cli]") {
  const Program program;
  program.folder().write("results.csv", "");
  CHECK(program.run("report results.csv").code != 0);
  program.train("run");
  for (const auto* wrong : {"report", "report nothing", "report run --margin 0", "report run --prompt a --no-samples",
                            "report run --reference other"})
    program.refuse(wrong, 2);
  fs::remove_all(program.at("run/checkpoints"));
  CHECK(program.json("report run --no-samples --no-heads")["problems"].empty());
  CHECK(data_of(program.read("report.html"))["texts"]["samples"].empty());
  const auto whole = program.json("report run");
  REQUIRE(whole["problems"].size() == 1);
  CHECK_THAT(whole["problems"][0].get<std::string>(), Mentions("run:|text|heads: "));
  fs::remove(program.at("run/summary.json"));
  const auto data = reported(program, "run");
  CHECK_THAT(program.read("err"), ContainsSubstring("run: left out: unfinished"));
  CHECK(data["comparison"].is_null());
  CHECK_THAT(data["runs"][0]["state"].get<std::string>(), ContainsSubstring("unfinished"));
}

TEST_CASE("attention is shown for the prompt if the run can encode it", "[cli]") {
  const Program program;
  program.train("run");
  const auto tokens_of = [&](const Arguments& more) {
    std::string tokens;
    const auto data = reported(program, joined("run", more));
    for (const auto& token : data["inspected"][0]["tokens"]) tokens += token.get<std::string>();
    return tokens;
  };
  const auto shown = tokens_of("--prompt 'not to be'");
  CHECK(shown.starts_with("not to be"));
  CHECK(shown.size() >= 16);  // model.context; the run's text follows the prompt
  const auto usual = tokens_of({});
  CHECK_FALSE(usual.starts_with("not to be"));
  CHECK(tokens_of("--prompt ~") == usual);
  const auto data = reported(program, "run --prompt ~ --text 'to be'");
  CHECK_THAT(data["texts"]["samples"][0]["error"].get<std::string>(), ContainsSubstring("no answer: "));
}

TEST_CASE("classifiers and masked language models are shown with a text of their data", "[cli]") {
  const Program program;
  std::string table = "text,label\n";
  for (int i = 0; i < 60; ++i) {
    const auto number = std::to_string(i);
    table += "\"engine " + number + ", failure of pump " + number + "\"," + (i % 2 == 0 ? "pump\n" : "motor\n");
  }
  program.folder().write("table.csv", table);
  program.succeed(
      "train --config text_classifier.yaml --out runs/classifier --set data.path=table.csv "
      "--set train.steps=2 --set model.width=16 --set model.heads=2");
  program.train("runs/masked", {"task=masked_language_model"});
  const auto data = reported(program, "runs");
  CHECK_THAT(data["texts"]["samples"][0]["prompt"].get<std::string>(), ContainsSubstring("failure of pump"));
  REQUIRE(data["inspected"].size() == 2);
  REQUIRE(data["classifiers"].size() == 1);
  CHECK(data["classifiers"][0]["confusion"]["validation"].size() == 2);
  CHECK(data["classifiers"][0]["missing"].empty());
  CHECK(data["classifiers"][0]["split"] == "validation");  // there is no test split
  CHECK(data["inspected"][0]["tokens"][0] == "engine");
  CHECK(data["inspected"][1]["tokens"].size() == 16);
  fs::remove(program.at("table.csv"));
  const auto without = reported(program, "runs");
  CHECK_THAT(without["texts"]["samples"][0]["prompt"].get<std::string>(), ContainsSubstring("film"));
  CHECK_THAT(without["problems"].dump(), ContainsSubstring("in place of one of its data"));
}

TEST_CASE("translators are shown with held-out sources, and with the prompt", "[cli]") {
  const Program program;
  program.succeed(
      "train --config seq2seq_copy.yaml --out run --set train.steps=2 --set model.width=16 --set model.heads=2 "
      "--set train.batch_size=4");
  const auto usual = reported(program, "run")["translations"];
  REQUIRE(usual.size() == 1);
  CHECK(usual[0]["sources"].size() == 5);
  CHECK(usual[0]["sources"][0]["source"] == usual[0]["sources"][0]["target"]);
  REQUIRE(usual[0]["answers"].size() == 1);
  CHECK(usual[0]["answers"][0]["texts"].size() == 5);
  const auto asked = reported(program, "run --prompt '1 2 3'");
  const auto& table = asked["translations"][0];
  CHECK((table["sources"].size() == 6 && table["answers"][0]["texts"].size() == 6));
  CHECK((table["sources"][0]["source"] == "1 2 3" && table["sources"][0]["target"].is_null()));
  CHECK("\n→ " + table["answers"][0]["texts"][0].get<std::string>() == asked["texts"]["samples"][0]["text"]);
  std::string tokens;
  for (const auto& token : asked["inspected"][0]["keys"]) tokens += token.get<std::string>();
  CHECK_THAT(tokens, Mentions("1|2|3"));
  CHECK(reported(program, "run --no-samples")["translations"].empty());
}

TEST_CASE("groups are in the order of the sweep, of its results file or of the arguments", "[cli]") {
  const Program program;
  for (const std::string mixer : {"metric", "quadratic", "scaled_dot_product"})
    program.train("runs/" + mixer, {"model.mixer=" + mixer});
  const auto mixers = [&](const Arguments& arguments) {
    const auto data = reported(program, joined(arguments, "--no-samples --no-heads"));
    std::string names;
    for (const auto& run : data["runs"]) names += run["name"].get<std::string>().substr(0, 1);
    return names;
  };
  CHECK(mixers("runs") == "mqs");
  CHECK(mixers("runs/scaled_dot_product runs/quadratic runs/metric") == "sqm");
  program.succeed("compare runs/quadratic runs/scaled_dot_product runs/metric --export results.csv --export-only");
  CHECK(mixers("runs results.csv") == "qsm");
  const auto data = reported(program, "results.csv runs --no-samples --no-heads");
  CHECK(data["problems"].empty());
  REQUIRE(data["comparison"]["groups"].size() == 3);
  for (int i = 0; i < 3; ++i) {
    CHECK(data["comparison"]["groups"][i]["color"] == i);
    CHECK(data["groups"][i]["name"] == data["comparison"]["groups"][i]["short_name"]);
  }
  std::string keys;
  for (const std::string run : {"scaled_dot_product", "metric"})
    keys += program.succeed("config dump --digest --config runs/" + run + "/config.yaml");
  program.folder().write("runs/.sweep/order", keys);
  CHECK(mixers("runs") == "smq");
  fs::remove(program.at("runs/metric/summary.json"));  // an unfinished run has its place, too
  CHECK(mixers("runs") == "smq");
}

TEST_CASE("report --watch serves a page on this machine that follows a growing run, until it is interrupted", "[cli]") {
  const Program program;
  program.train("run");
  const auto pid = program.start("report --watch run --every 0.1 --no-samples --no-heads");
  wait_until([&] { return !lines_of(program.read("out")).empty(); });
  const auto url = lines_of(program.read("out")).front();
  CHECK(url.starts_with("http://127.0.0.1:"));
  const auto host = url.substr(7, url.size() - 8);
  const int port = std::stoi(host.substr(host.find(':') + 1));
  const auto ask = [&](const std::string& path) {
    const auto answer = answer_of_port(port, get(path, host));
    return answer.substr(std::min(answer.size(), answer.find("\r\n\r\n") + 4));
  };
  const auto losses = [&] { return Json::parse(ask("/data"))["curves"]["series"]["train loss"]["runs"][0]["value"]; };
  CHECK(data_of(ask("/")) == Json::parse(ask("/data")));
  CHECK_THAT(ask("/"), ContainsSubstring("connect-src 'self'"));
  CHECK(data_of(ask("/"))["watch"]["seconds"] == 0.1);
  const auto before = losses().size();
  const auto line = R"({"step":5,"split":"train","loss":1.25,"seconds":9,"tokens":999})";
  program.folder().write("run/metrics.jsonl", program.read("run/metrics.jsonl") + line + "\n");
  wait_until([&] { return losses().size() > before; });
  CHECK(losses().back() == 1.25);
  fs::rename(program.at("run"), program.at("gone"));  // the page stays
  fs::rename(program.at("gone"), program.at("run"));
  program.folder().write("run/metrics.jsonl", "");
  wait_until([&] { return !Json::parse(ask("/data"))["curves"]["series"].contains("train loss"); });
  CHECK(answer_of_port(port, get("/", "evil.example")).find("report-data") == std::string::npos);
  kill(pid, SIGINT);
  const auto result = program.wait(pid);
  INFO(result.err);
  CHECK(result.code == 130);
  CHECK_FALSE(program.has("report.html"));
}

TEST_CASE("report refuses options that --watch leaves without effect, and --port and --every without --watch",
          "[cli]") {
  const Program program;
  program.train("run");
  for (const auto* more : {"--watch --json", "--watch --every 1 -o page.html", "--watch --figures figures"})
    program.refuse(joined("report run", more), 2, {"--watch"});
  program.refuse("report run --port 8000", 2, {"--watch"});
  program.refuse("report run --every 5", 2, {"--watch"});
  program.refuse("report run --watch --port 65536", 2, {"--port"});
  program.refuse("report run --watch --every 0", 2, {"--every"});
  program.refuse("report nothing --watch", 2, {"nothing"});
}

TEST_CASE("inspect writes arrays, numbers and pictures into the run, also beside the forms of another run",
          "[inspect]") {
  const Program program;
  program.train("run", {"model.mixer=metric"});
  program.train("other", {"model.mixer=scaled_dot_product"});
  CHECK_THAT(program.succeed(inspect, "--text 'to be'"),
             ContainsSubstring("mixer metric") && ContainsSubstring("effective context: "));
  for (const std::string name : {"inspection.safetensors", "inspection.json", "attention_0.svg", "scores_0.svg",
                                 "forms_0.svg", "distances_0.svg", "eigenvalues.svg", "norms.svg", "gradients.svg",
                                 "loss_by_position.svg", "loss_by_context.svg"})
    CHECK_FALSE(program.read("run/inspect/" + name).empty());
  const auto json = program.read_json("run/inspect/inspection.json");
  CHECK(json["tokens"] == Json({"t", "o", " ", "b", "e"}));
  CHECK(json["layers"][0]["heads"].size() == 2);
  program.succeed(inspect, "--beside other --no-data --text 'to be'");
  CHECK_THAT(program.read("run/inspect/forms_0.svg"), ContainsSubstring("M, head 1") && ContainsSubstring("W_q W_k^T"));
}

TEST_CASE("inspect --json prints the content of inspection.json, and a wrong option is an error that names it",
          "[inspect]") {
  const Program program;
  program.train("run");
  const auto json = program.json(inspect, "--text 'to be' --no-data --no-pictures --out found");
  CHECK(json == program.read_json("found/inspection.json"));
  CHECK_FALSE(json.contains("validation"));
  CHECK_FALSE(program.has("found/norms.svg"));
  CHECK(program.json(inspect, "--tokens 7 --no-pictures")["tokens"].size() == 7);
  const auto whole = program.json(inspect, "--no-pictures");
  CHECK(whole["tokens"].size() == 16);
  CHECK(whole["validation"]["loss_by_position"].size() == 16);
  for (const auto& [more, code, text] :
       std::vector<std::tuple<Arguments, int, std::string>>{{"--no-data", 2, "--no-data|--text|--file"},
                                                            {"--text 'to be' --file -", 2, "--file"},
                                                            {"--file absent.txt", 3, "absent.txt"},
                                                            {"--text 'to be' --tokens 0", 2, "--tokens"},
                                                            {"--text '' --no-data", 3, "empty"},
                                                            {"--file /dev/null --no-data", 3, "empty"}})
    program.refuse(joined(inspect, more), code, {text});
}
