# SHEAF_SANITIZE=address builds with AddressSanitizer and UBSan, =thread with ThreadSanitizer.
# ThreadSanitizer models no fences: SHEAF_TSAN turns them into read-modify-writes (shm/doorbell.h).
if(SHEAF_SANITIZE STREQUAL "address")
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
elseif(SHEAF_SANITIZE STREQUAL "thread")
  add_compile_options(-fsanitize=thread -fno-omit-frame-pointer)
  add_link_options(-fsanitize=thread)
  add_compile_definitions(SHEAF_TSAN)
elseif(NOT SHEAF_SANITIZE STREQUAL "")
  message(FATAL_ERROR "SHEAF_SANITIZE='${SHEAF_SANITIZE}': want address, thread or nothing")
endif()

# Instrumented code gains little from -O2, and its build takes much longer.
if(NOT SHEAF_SANITIZE STREQUAL "")
  set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O1 -g1")
endif()

# Everything with the counters that libFuzzer is guided by; tests/fuzz then takes libFuzzer's main.
option(SHEAF_FUZZ "Build the fuzz programs for libFuzzer; needs clang" OFF)
if(SHEAF_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
