#include "report/page_server.h"

#include <fmt/format.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <limits>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>  // Boost 1.74 uses std::exchange without this header

#include "base/digest.h"
#include "base/error.h"
#include "base/text.h"

namespace metaformer {

namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using boost::beast::error_code;
using boost::beast::tcp_stream;
using tcp = asio::ip::tcp;

struct Published {
  std::string page, data, etag;
};

// What the main thread publishes and the server's thread reads.
class Board {
 public:
  void put(Published content) {
    auto next = std::make_shared<const Published>(std::move(content));
    const std::lock_guard lock(mutex_);
    content_ = std::move(next);
  }
  std::shared_ptr<const Published> get() const {
    const std::lock_guard lock(mutex_);
    return content_;
  }

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<const Published> content_;
};

using Request = http::request<http::empty_body>;
using Response = http::response<http::string_body>;

bool is_for_this_machine(const Request& request, std::uint16_t port) {
  if (request.count(http::field::host) != 1) return false;
  const auto host = request[http::field::host];
  for (const char* name : {"127.0.0.1", "localhost"})
    if (host == fmt::format("{}:{}", name, port) || (port == 80 && host == name)) return true;
  return false;
}

Response answer_with(http::status status, const char* type = "text/plain; charset=utf-8", std::string body = "") {
  Response response(status, 11);
  response.set(http::field::content_type, type);
  response.set(http::field::cache_control, "no-store");
  response.set("Referrer-Policy", "no-referrer");
  response.set("X-Content-Type-Options", "nosniff");
  response.set("Cross-Origin-Resource-Policy", "same-origin");
  response.set("Content-Security-Policy", "frame-ancestors 'none'");
  response.keep_alive(false);
  response.body() = std::move(body);
  return response;
}

Response answer_to(const Request& request, std::uint16_t port, const Published* content) {
  if (!is_for_this_machine(request, port))
    return answer_with(http::status::misdirected_request, "text/plain; charset=utf-8",
                       fmt::format("This page is at http://127.0.0.1:{}/ only.\n", port));
  if (request.method() != http::verb::get) {
    auto response = answer_with(http::status::method_not_allowed);
    response.set(http::field::allow, "GET");
    return response;
  }
  const bool is_page = request.target() == "/";
  if (!is_page && request.target() != "/data") return answer_with(http::status::not_found);
  if (content == nullptr) return answer_with(http::status::service_unavailable);
  if (is_page) return answer_with(http::status::ok, "text/html; charset=utf-8", content->page);
  const bool is_known = request[http::field::if_none_match] == content->etag;
  auto response = is_known ? answer_with(http::status::not_modified)
                           : answer_with(http::status::ok, "application/json", content->data);
  response.set(http::field::etag, content->etag);
  return response;
}

// One request and its answer.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(tcp::socket socket, const Board& board, std::uint16_t port)
      : stream_(std::move(socket)), board_(board), port_(port) {
    parser_.header_limit(1 << 14);
    parser_.body_limit(std::numeric_limits<std::uint64_t>::max());  // it is not read
  }

  void start() {
    stream_.expires_after(patience);
    http::async_read_header(stream_, buffer_, parser_, [self = shared_from_this()](error_code error, std::size_t) {
      if (!error) self->write();
    });
  }

 private:
  static constexpr std::chrono::seconds patience{30};

  void write() {
    const auto content = board_.get();
    response_ = answer_to(parser_.get(), port_, content.get());
    response_.prepare_payload();
    stream_.expires_after(patience);
    http::async_write(stream_, response_, [self = shared_from_this()](error_code, std::size_t) {
      error_code ignored;
      self->stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
    });
  }

  tcp_stream stream_;
  const Board& board_;
  const std::uint16_t port_;
  boost::beast::flat_buffer buffer_;
  http::request_parser<http::empty_body> parser_;
  Response response_;
};

}  // namespace

// Accepts connections in a thread of its own.
class PageServer::Listener {
 public:
  explicit Listener(std::uint16_t port) : acceptor_(context_) {
    open(port);
    port_ = acceptor_.local_endpoint().port();
    accept();
    thread_ = std::thread([this] { context_.run(); });
  }

  ~Listener() {
    context_.stop();
    thread_.join();
  }

  std::uint16_t port() const { return port_; }
  Board& board() { return board_; }

 private:
  void open(std::uint16_t port) try {
    const tcp::endpoint endpoint(asio::ip::address_v4::loopback(), port);
    acceptor_.open(endpoint.protocol());
    acceptor_.set_option(tcp::acceptor::reuse_address(true));
    acceptor_.bind(endpoint);
    acceptor_.listen();
  } catch (const boost::system::system_error& error) {
    fail_usage("--port {}: cannot listen on 127.0.0.1: {}; choose another port, or 0 for any free one", port,
               error.code().message());
  }

  void accept() {
    acceptor_.async_accept([this](error_code error, tcp::socket socket) {
      if (!error) std::make_shared<Connection>(std::move(socket), board_, port_)->start();
      if (error == asio::error::operation_aborted) return;
      if (error) std::this_thread::sleep_for(std::chrono::milliseconds(100));  // too many open files
      accept();
    });
  }

  Board board_;
  std::uint16_t port_ = 0;
  asio::io_context context_{1};  // after the board, which its connections use until it is gone
  tcp::acceptor acceptor_;
  std::thread thread_;
};

PageServer::PageServer(std::uint16_t port) : listener_(std::make_unique<Listener>(port)) {}

PageServer::~PageServer() = default;

std::uint16_t PageServer::port() const { return listener_->port(); }

std::string PageServer::url() const { return fmt::format("http://127.0.0.1:{}/", port()); }

void PageServer::publish(std::string page, std::string data) {
  constexpr std::size_t digits = 16;
  auto etag = fmt::format("\"{}\"", sha256(data).substr(0, digits));
  listener_->board().put({.page = std::move(page), .data = std::move(data), .etag = std::move(etag)});
}

}  // namespace metaformer
