#pragma once
// The fields of options whose type is not known where they are visited: those of a mixer, which a registry holds.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "config/schema.h"

namespace metaformer {

// A value that is one of several names.
struct Choice {
  std::vector<std::string> names;
  std::size_t index = 0;
};

// A value of a type that has its own text form (see TextForm).
struct TextValue {
  std::string text;
  std::string expected;  // "a number of tokens (at least 1) or 'all'"
  std::string type;      // "integer, at least 1, or all"
  std::function<bool(const std::string&)> is_allowed;
};

// Specialised for types that are written as a text: constants `expected` and `type`, `static std::string write(const
// T&)` and `static bool read(const std::string&, T&)`, which is false for a text that is not allowed.
template <class T>
struct TextForm;

// A visitor of fields (config/schema.h) with every type that an option may have.
class FieldVisitor {
 public:
  virtual ~FieldVisitor() = default;
  virtual void field(const char* name, bool& value, const char* help) = 0;
  virtual void field(const char* name, std::string& value, const char* help) = 0;
  virtual void field(const char* name, Choice& value, const char* help) = 0;
  virtual void field(const char* name, TextValue& value, const char* help) = 0;
  virtual void field(const char* name, std::int64_t& value, const Range& range, const char* help) = 0;
  virtual void field(const char* name, double& value, const Range& range, const char* help) = 0;
  virtual void field(const char* name, std::optional<double>& value, const Range& range, const char* help) = 0;
};

// From the `visit` of a struct to a FieldVisitor.
class FieldSender {
 public:
  explicit FieldSender(FieldVisitor& to) : to_(to) {}

  template <class T>
  void operator()(const char* name, T& value, const Range& range, const char* help) {
    to_.field(name, value, range, help);
  }
  template <class T>
  void operator()(const char* name, T& value, const char* help) {
    if constexpr (std::is_enum_v<T>) {
      Choice choice{names_of<T>(), static_cast<std::size_t>(value)};
      to_.field(name, choice, help);
      value = static_cast<T>(choice.index);
    } else if constexpr (requires { TextForm<T>::expected; }) {
      TextValue text{TextForm<T>::write(value), TextForm<T>::expected, TextForm<T>::type, [](const std::string& given) {
                       T ignored;
                       return TextForm<T>::read(given, ignored);
                     }};
      to_.field(name, text, help);
      TextForm<T>::read(text.text, value);
    } else {
      to_.field(name, value, help);
    }
  }

 private:
  FieldVisitor& to_;
};

// From a FieldVisitor to a visitor of structs.
template <class Visitor>
class FieldReceiver : public FieldVisitor {
 public:
  explicit FieldReceiver(Visitor& to) : to_(to) {}
  void field(const char* name, bool& value, const char* help) override { to_(name, value, help); }
  void field(const char* name, std::string& value, const char* help) override { to_(name, value, help); }
  void field(const char* name, Choice& value, const char* help) override { to_(name, value, help); }
  void field(const char* name, TextValue& value, const char* help) override { to_(name, value, help); }
  void field(const char* name, std::int64_t& value, const Range& range, const char* help) override {
    to_(name, value, range, help);
  }
  void field(const char* name, double& value, const Range& range, const char* help) override {
    to_(name, value, range, help);
  }
  void field(const char* name, std::optional<double>& value, const Range& range, const char* help) override {
    to_(name, value, range, help);
  }

 private:
  Visitor& to_;
};

}  // namespace metaformer
