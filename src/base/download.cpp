#include "base/download.h"

#include <curl/curl.h>
#include <fmt/format.h>

#include <memory>

#include "base/error.h"
#include "base/signals.h"

namespace metaformer {

namespace {

struct Received {
  std::string content;
  std::uint64_t largest;
};

std::size_t receive(char* data, std::size_t size, std::size_t count, void* target) {
  auto& received = *static_cast<Received*>(target);
  if (received.content.size() + size * count > received.largest) return 0;  // curl reports a write error
  received.content.append(data, size * count);
  return size * count;
}

int stop_when_asked(void*, curl_off_t, curl_off_t, curl_off_t, curl_off_t) { return stop_signal() != 0; }

}  // namespace

std::string download(const std::string& url, std::uint64_t largest) {
  const std::unique_ptr<CURL, decltype(&curl_easy_cleanup)> curl(curl_easy_init(), curl_easy_cleanup);
  if (!curl) throw Error(ExitCode::failure, "libcurl could not be started");
  Received received{.content = {}, .largest = largest};
  char reason[CURL_ERROR_SIZE] = "";
  curl_easy_setopt(curl.get(), CURLOPT_URL, url.c_str());
  curl_easy_setopt(curl.get(), CURLOPT_PROTOCOLS_STR, "https");
  curl_easy_setopt(curl.get(), CURLOPT_REDIR_PROTOCOLS_STR, "https");
  curl_easy_setopt(curl.get(), CURLOPT_FOLLOWLOCATION, 1L);
  curl_easy_setopt(curl.get(), CURLOPT_MAXREDIRS, 5L);
  curl_easy_setopt(curl.get(), CURLOPT_FAILONERROR, 1L);
  curl_easy_setopt(curl.get(), CURLOPT_CONNECTTIMEOUT, 20L);
  curl_easy_setopt(curl.get(), CURLOPT_LOW_SPEED_LIMIT, 1000L);  // bytes a second ...
  curl_easy_setopt(curl.get(), CURLOPT_LOW_SPEED_TIME, 30L);     // ... for this many seconds: gives up
  curl_easy_setopt(curl.get(), CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl.get(), CURLOPT_ERRORBUFFER, reason);
  curl_easy_setopt(curl.get(), CURLOPT_WRITEFUNCTION, receive);
  curl_easy_setopt(curl.get(), CURLOPT_WRITEDATA, &received);
  curl_easy_setopt(curl.get(), CURLOPT_NOPROGRESS, 0L);
  curl_easy_setopt(curl.get(), CURLOPT_XFERINFOFUNCTION, stop_when_asked);
  const auto code = curl_easy_perform(curl.get());
  throw_if_stopped();
  if (code != CURLE_OK)
    throw Error(ExitCode::data,
                fmt::format("cannot download {}: {}", url, *reason ? reason : curl_easy_strerror(code)));
  return std::move(received.content);
}

std::string curl_version_text() { return curl_version_info(CURLVERSION_NOW)->version; }

}  // namespace metaformer
