#include "base/download.h"

#include <curl/curl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <set>

#include "base/error.h"
#include "base/log.h"
#include "base/signals.h"

namespace metaformer {

namespace fs = std::filesystem;

namespace {

// Relative paths are ignored, as the XDG Base Directory Specification requires.
std::optional<fs::path> cache_in_home() {
  for (const auto& [variable, folder] : {std::pair("XDG_CACHE_HOME", "metaformer"), {"HOME", ".cache/metaformer"}})
    if (const char* value = std::getenv(variable); value != nullptr && fs::path(value).is_absolute())
      return fs::path(value) / folder;
  return std::nullopt;
}

// The reason why other users may have written to the folder, or "". Unless `must_be_own`, root may own it, and
// everybody may write to it if it is sticky.
std::string distrust(const fs::path& folder, bool must_be_own) {
  struct stat status;
  if (::stat(folder.c_str(), &status) != 0) return "";
  const auto user = ::geteuid();
  if (status.st_uid != user && (must_be_own || status.st_uid != 0))
    return fmt::format("belongs to user {}, not to user {}, who runs this", status.st_uid, user);
  const bool is_sticky = (status.st_mode & S_ISVTX) != 0;
  if ((status.st_mode & S_IWOTH) != 0 && (must_be_own || !is_sticky)) return "everybody may write to it";
  return "";
}

void warn_once(const std::string& message) {
  static std::set<std::string> said;
  if (said.insert(message).second) log::warning("{}", message);
}

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

// The certificates to trust, or "": those that libcurl was built with. The libcurl of a package was built for another
// system, whose certificates are in another file.
std::string trusted_certificates() {
  if (const char* chosen = std::getenv("SSL_CERT_FILE"); chosen != nullptr && *chosen != '\0') return chosen;
  std::error_code ignored;
  for (const char* path : {"/etc/ssl/certs/ca-certificates.crt",  // Debian, Ubuntu, Arch, Alpine
                           "/etc/pki/tls/certs/ca-bundle.crt",    // Fedora, Red Hat
                           "/etc/ssl/ca-bundle.pem"})             // openSUSE
    if (fs::exists(path, ignored)) return path;
  return "";
}

int stop_when_asked(void*, curl_off_t, curl_off_t, curl_off_t, curl_off_t) { return stop_signal() != 0; }

}  // namespace

std::optional<fs::path> cache_folder() {
  const auto folder = cache_in_home();
  if (!folder) {
    warn_once("neither HOME nor XDG_CACHE_HOME names a folder: nothing is kept between runs, and no cache is read");
    return std::nullopt;
  }
  for (const auto& path : {*folder, folder->parent_path()})
    if (const auto why = distrust(path, path == *folder); !why.empty()) {
      warn_once(fmt::format("{}: {}: nothing is kept there, and nothing there is used", path.string(), why));
      return std::nullopt;
    }
  return folder;
}

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
  if (const auto trusted = trusted_certificates(); !trusted.empty())
    curl_easy_setopt(curl.get(), CURLOPT_CAINFO, trusted.c_str());
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
