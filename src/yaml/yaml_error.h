#pragma once
// What a reader of YAML complains of, in the words of someone who writes a config.

#include <string>

namespace YAML {
class Exception;
}

namespace metaformer {

struct YamlError {
  int line = 0;  // from 1
  int column = 0;
  std::string what;
};

// Of yaml-cpp's error in `text`.
YamlError describe_yaml_error(const YAML::Exception& error, const std::string& text);

}  // namespace metaformer
