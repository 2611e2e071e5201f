# Headers that nearly every file reads, parsed once: the standard library, Abseil's containers and the messages. A
# precompiled header hides an include that is missing, so the build for fuzzing goes without.
option(SHEAF_PRECOMPILE "Parse the common headers once" ON)
if(SHEAF_FUZZ)
  set(SHEAF_PRECOMPILE OFF)
endif()

set(sheaf_common_headers
  <algorithm> <array> <atomic> <chrono> <cstdint> <cstring> <deque> <functional> <map> <memory> <mutex> <optional> <set>
  <span> <string> <string_view> <utility> <vector>
  <absl/container/btree_map.h> <absl/container/flat_hash_map.h> <absl/container/flat_hash_set.h> <absl/status/statusor.h>
  <absl/strings/str_cat.h>)
set(sheaf_message_headers <proto/gcs.pb.h> <proto/raylet.pb.h>)

# _sheaf_precompiled(NAME HEADERS h... LINK target... OPTIONS flag...): a target that others take their headers from.
function(_sheaf_precompiled name)
  cmake_parse_arguments(ARG "" "" "HEADERS;LINK;OPTIONS" ${ARGN})
  file(WRITE ${PROJECT_BINARY_DIR}/precompiled/${name}.cc "")
  add_library(sheaf_precompiled_${name} STATIC ${PROJECT_BINARY_DIR}/precompiled/${name}.cc)
  target_link_libraries(sheaf_precompiled_${name} PRIVATE ${ARG_LINK} Threads::Threads
    absl::btree absl::flat_hash_map absl::flat_hash_set absl::statusor absl::strings)
  target_include_directories(sheaf_precompiled_${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_compile_options(sheaf_precompiled_${name} PRIVATE ${ARG_OPTIONS})
  target_precompile_headers(sheaf_precompiled_${name} PRIVATE ${ARG_HEADERS})
endfunction()

# sheaf_use_precompiled(TARGET KIND): KIND is `base` (no messages), `messages` or `test`. The compiler refuses a precompiled header that was made with other flags, and reads the headers as usual.
function(sheaf_use_precompiled target kind)
  if(NOT SHEAF_PRECOMPILE)
    return()
  endif()
  if(NOT TARGET sheaf_precompiled_${kind})
    set(library_options -Wall -Wextra -Werror=return-type)
    if(kind STREQUAL "base")
      _sheaf_precompiled(base HEADERS ${sheaf_common_headers} OPTIONS ${library_options})
    elseif(kind STREQUAL "messages")
      _sheaf_precompiled(messages HEADERS ${sheaf_common_headers} ${sheaf_message_headers}
        LINK sheaf_proto OPTIONS ${library_options})
    else()
      _sheaf_precompiled(test HEADERS <catch2/catch.hpp> ${sheaf_common_headers} ${sheaf_message_headers}
        LINK sheaf_proto sheaf_catch OPTIONS -Wall -Wextra -O1 -fPIE)
      set_target_properties(sheaf_precompiled_test PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    endif()
  endif()
  target_precompile_headers(${target} REUSE_FROM sheaf_precompiled_${kind})
endfunction()

# Files of one target read nearly the same headers and instantiate the same templates: eight at once take a third of the
# time. For tests only, whose own names stand in a namespace of the file's name: elsewhere a function that one file keeps to
# itself would silently be another's better overload.
option(SHEAF_UNITY "Compile several files of the large tests at once; OFF suits who edits one of them often" ON)
if(SHEAF_FUZZ)
  set(SHEAF_UNITY OFF)
endif()

# sheaf_compile_together(TARGET...)
function(sheaf_compile_together)
  foreach(target ${ARGN})
    if(TARGET ${target})  # There may be no tests.
      set_target_properties(${target} PROPERTIES UNITY_BUILD ${SHEAF_UNITY} UNITY_BUILD_BATCH_SIZE 8)
    endif()
  endforeach()
endfunction()
