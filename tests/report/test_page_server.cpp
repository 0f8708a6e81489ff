// The server of report --watch: it is reachable from this machine only, under its own names only, and for reading only.

#include "base/error.h"
#include "report/page_server.h"
#include "support/failure.h"
#include "support/http_request.h"
#include "support/torch_catch.h"

namespace metaformer::test_page_server {

namespace {

struct Served {
  PageServer server{0};
  std::string host = "127.0.0.1:" + std::to_string(server.port());

  std::string ask(const std::string& path, const std::string& more = "") const {
    return answer_of_port(server.port(), get(path, host, more));
  }
  std::string send(const std::string& request) const { return answer_of_port(server.port(), request); }
};

std::string status_of(const std::string& answer) { return answer.substr(0, answer.find("\r\n")); }

std::string header(const std::string& answer, const std::string& name) {
  const auto start = answer.find("\r\n" + name + ": ");
  if (start == std::string::npos) return "";
  const auto from = start + name.size() + 4;
  return answer.substr(from, answer.find("\r\n", from) - from);
}

std::string body(const std::string& answer) { return answer.substr(answer.find("\r\n\r\n") + 4); }

}  // namespace

TEST_CASE("a page and its data are served until newer ones are published", "[report]") {
  Served served;
  CHECK(served.server.url() == "http://" + served.host + "/");
  CHECK_THAT(status_of(served.ask("/")), ContainsSubstring(" 503 "));
  served.server.publish("<p>page</p>", "{\"a\":1}");
  const auto page = served.ask("/"), data = served.ask("/data");
  CHECK(status_of(page) == "HTTP/1.1 200 OK");
  CHECK(body(page) == "<p>page</p>");
  CHECK_THAT(header(page, "Content-Type"), ContainsSubstring("text/html"));
  CHECK(header(page, "Cache-Control") == "no-store");
  CHECK(body(data) == "{\"a\":1}");
  const auto tag = header(data, "ETag");
  CHECK_THAT(status_of(served.ask("/data", "If-None-Match: " + tag + "\r\n")), ContainsSubstring(" 304 "));
  const std::string large(3'000'000, 'x');
  served.server.publish("<p>next</p>", large);
  const auto next = served.ask("/data", "If-None-Match: " + tag + "\r\n");
  CHECK(status_of(next) == "HTTP/1.1 200 OK");
  CHECK((body(next) == large));
}

TEST_CASE("a server of a page listens on 127.0.0.1 only", "[report]") {
  Served served;
  served.server.publish("page", "{}");
  CHECK(body(served.ask("/")) == "page");
  // A server that listens on all addresses would also have this one.
  CHECK(answer_of_port(served.server.port(), get("/", served.host), 2) == "");
}

TEST_CASE("a request under another name than that of the server is refused", "[report]") {
  Served served;
  served.server.publish("secret", "secret");
  const auto port = std::to_string(served.server.port());
  for (const auto& name : {"localhost:" + port, "127.0.0.1:" + port})
    CHECK(body(served.send(get("/", name))) == "secret");
  for (const auto& name :
       std::vector<std::string>{"evil.example:" + port, "127.0.0.1", "localhost", "127.0.0.1.evil.example:" + port,
                                "127.0.0.1:1", "[::1]:" + port, ""})
    for (const char* path : {"/", "/data"}) {
      INFO(name);
      const auto answer = served.send(get(path, name));
      CHECK_THAT(status_of(answer), ContainsSubstring(" 421 "));
      CHECK_THAT(answer, !ContainsSubstring("secret"));
    }
  CHECK_THAT(status_of(served.send("GET / HTTP/1.1\r\n\r\n")), ContainsSubstring(" 421 "));
  CHECK_THAT(status_of(served.ask("/", "Host: evil.example\r\n")), ContainsSubstring(" 421 "));
}

TEST_CASE("only GET of the two paths is answered", "[report]") {
  Served served;
  served.server.publish("page", "{}");
  for (const std::string method : {"POST", "PUT", "DELETE", "HEAD", "OPTIONS"}) {
    const auto answer = served.send(method + " / HTTP/1.1\r\nHost: " + served.host + "\r\nContent-Length: 0\r\n\r\n");
    CHECK_THAT(status_of(answer), ContainsSubstring(" 405 "));
    CHECK(header(answer, "Allow") == "GET");
  }
  for (const std::string path : {"/other", "/data/", "/../etc/passwd", "//", "/?a", "http://evil.example/"})
    CHECK_THAT(status_of(served.ask(path)), ContainsSubstring(" 404 "));
  CHECK(served.send("nonsense\r\n\r\n") == "");
  CHECK(served.send("GET / HTTP/1.1\r\nHost: " + served.host + "\r\nA: " + std::string(100'000, 'a') + "\r\n\r\n") ==
        "");
  CHECK(body(served.ask("/")) == "page");
}

TEST_CASE("a port that is in use is an error that names it, and a closed server frees its port", "[report]") {
  int port = 0;
  {
    Served served;
    served.server.publish("page", "{}");
    port = served.server.port();
    CHECK(body(served.ask("/")) == "page");
    CHECK_THAT(message_of(ExitCode::usage, [&] { PageServer(static_cast<std::uint16_t>(port)); }),
               ContainsSubstring("--port " + std::to_string(port)));
  }
  CHECK(answer_of_port(port, get("/", "127.0.0.1:" + std::to_string(port))) == "");
  const PageServer again(static_cast<std::uint16_t>(port));
  CHECK(again.port() == port);
}

}  // namespace metaformer::test_page_server
