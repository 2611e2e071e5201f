# sheaf_library(NAME SOURCES a.cc... [DEPENDS folder...] [LINK target...])
# One static library per folder, sheaf_NAME. DEPENDS names folders of Sheaf and is compared by
# tests/architecture with the table of allowed layers; LINK names libraries from outside.
function(sheaf_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS;LINK" ${ARGN})
  if(ARG_SOURCES)
    add_library(sheaf_${name} STATIC ${ARG_SOURCES})
    set(scope PUBLIC)
  else()
    add_library(sheaf_${name} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_include_directories(sheaf_${name} ${scope} ${PROJECT_SOURCE_DIR})
  if(scope STREQUAL "PUBLIC")
    target_compile_options(sheaf_${name} PRIVATE -Wall -Wextra -Werror=return-type)
  endif()
  list(TRANSFORM ARG_DEPENDS PREPEND sheaf_ OUTPUT_VARIABLE folders)
  target_link_libraries(sheaf_${name} ${scope} ${folders} ${ARG_LINK} Threads::Threads)
  if(scope STREQUAL "PUBLIC")
    if("proto" IN_LIST ARG_DEPENDS OR "worker" IN_LIST ARG_DEPENDS)
      sheaf_use_precompiled(sheaf_${name} messages)
    else()
      sheaf_use_precompiled(sheaf_${name} base)
    endif()
  endif()
endfunction()

# Catch2 itself, compiled once, and a main for the programs that have none of their own.
if(SHEAF_BUILD_TESTS)
  file(WRITE ${PROJECT_BINARY_DIR}/catch/implementation.cc "#define CATCH_CONFIG_RUNNER\n#include <catch2/catch.hpp>\n")
  file(WRITE ${PROJECT_BINARY_DIR}/catch/main.cc
    "#include <catch2/catch.hpp>\nint main(int argc, char** argv) { return Catch::Session().run(argc, argv); }\n")
  add_library(sheaf_catch STATIC ${PROJECT_BINARY_DIR}/catch/implementation.cc ${PROJECT_BINARY_DIR}/catch/main.cc)
  target_link_libraries(sheaf_catch PUBLIC Catch2::Catch2)
  target_compile_definitions(sheaf_catch PUBLIC CATCH_CONFIG_EXTERNAL_INTERFACES)  # Catch::Session
  target_compile_options(sheaf_catch PRIVATE -O0)
endif()

# sheaf_test(FOLDER SOURCES a_test.cc... [DEPENDS folder...] [LINK target...])
# One Catch2 program per folder, FOLDER_test, registered with ctest.
function(sheaf_test name)
  if(NOT SHEAF_BUILD_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;DEPENDS;LINK" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  add_executable(${name}_test ${ARG_SOURCES})
  target_compile_options(${name}_test PRIVATE -Wall -Wextra -O1)
  list(TRANSFORM ARG_DEPENDS PREPEND sheaf_ OUTPUT_VARIABLE folders)
  target_link_libraries(${name}_test PRIVATE ${folders} ${ARG_LINK} sheaf_catch)
  if(TARGET sheaf_${name})
    target_link_libraries(${name}_test PRIVATE sheaf_${name})
  endif()
  sheaf_use_precompiled(${name}_test test)
  add_test(NAME ${name} COMMAND ${name}_test)
  set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT})
endfunction()

# sheaf_proto(SOURCES a.proto...): the messages, against protobuf-lite.
function(sheaf_proto)
  cmake_parse_arguments(ARG "" "" "SOURCES" ${ARGN})
  set(out)
  foreach(source ${ARG_SOURCES})
    get_filename_component(stem ${source} NAME_WE)
    set(generated ${PROJECT_BINARY_DIR}/proto/${stem}.pb)
    add_custom_command(
      OUTPUT ${generated}.cc ${generated}.h
      COMMAND protobuf::protoc --cpp_out=${PROJECT_BINARY_DIR} -I ${PROJECT_SOURCE_DIR}
              ${PROJECT_SOURCE_DIR}/proto/${source}
      DEPENDS ${PROJECT_SOURCE_DIR}/proto/${source})
    list(APPEND out ${generated}.cc)
  endforeach()
  add_library(sheaf_proto STATIC ${out})
  target_include_directories(sheaf_proto PUBLIC ${PROJECT_BINARY_DIR} ${Protobuf_INCLUDE_DIRS})
  # The shared library: Debian's static one is not position-independent, and libsheaf.so links this. The `sheaf`
  # command takes the static one instead (cmake/link_static.sh).
  target_link_libraries(sheaf_proto PUBLIC protobuf::libprotobuf-lite Threads::Threads)
endfunction()
