"""Transfer of files and folders over a stream: `pgm.files.sending.send`, `pgm.files.receiving.FileReceiver`."""
